//! Decodes the messages of an Arrow stream on stdin to one on stdout: `decode SPEC`, with a spec as `Spec::parse` takes it.
//!
//! The stream has the messages in its only column. The result has the rows and what became of each message: 0 decoded, 1
//! null, 2 left.

use std::io::{stdin, stdout};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, Int8Array, RecordBatch};
use arrow_ipc::{reader::StreamReader, writer::StreamWriter};
use dynamic_kafka_decode::{Decoder, Spec};

fn main() {
    let text = std::env::args().nth(1).expect("a spec");
    let mut decoder = Decoder::new(&Spec::parse(&text).expect("a spec")).expect("types that can be decoded");
    let mut writer = None;
    for batch in StreamReader::try_new(stdin().lock(), None).expect("an Arrow stream") {
        let batch = batch.expect("a batch");
        let messages = batch.column(0).as_binary::<i32>();
        let outcomes: Int8Array = messages.iter().map(|message| Some(decoder.append(message) as i8)).collect();
        let columns = [("rows", Arc::new(decoder.finish()) as ArrayRef, true), ("outcome", Arc::new(outcomes), false)];
        let result = RecordBatch::try_from_iter_with_nullable(columns).expect("a batch");
        assert_eq!(result.num_rows(), messages.len());
        let writer = writer.get_or_insert_with(|| {
            StreamWriter::try_new(stdout().lock(), &result.schema()).expect("a reader of the stream")
        });
        writer.write(&result).expect("a reader of the stream");
    }
    if let Some(mut writer) = writer {
        writer.finish().expect("a reader of the stream");
    }
}

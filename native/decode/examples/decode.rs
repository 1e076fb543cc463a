//! Decodes the messages of an Arrow stream on stdin to one on stdout: `decode json [fail-on-missing-field]`.
//!
//! The stream has the messages in its first column; the type of the second one, a struct, says which columns are wanted.
//! The result has the rows and what became of each message: 0 decoded, 1 null, 2 left.

use std::io::{stdin, stdout};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Int8Array, RecordBatch};
use arrow_ipc::{reader::StreamReader, writer::StreamWriter};
use arrow_schema::{DataType, Field, Schema};
use dynamic_kafka_decode::{Decoder, json};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let batches = StreamReader::try_new(stdin().lock(), None).expect("an Arrow stream");
    let wanted = batches.schema().field(1).clone();
    let DataType::Struct(columns) = wanted.data_type() else { panic!("the second column is no struct") };
    let options = json::Options { fail_on_missing_field: arguments.iter().any(|a| a == "fail-on-missing-field") };
    let mut decoder = Decoder::json(columns, options).expect("types that can be decoded");
    let fields = vec![wanted.clone().with_nullable(true), Field::new("outcome", DataType::Int8, false)];
    let schema = Arc::new(Schema::new(fields));
    let mut writer = StreamWriter::try_new(stdout().lock(), &schema).expect("a stream");
    for batch in batches {
        let batch = batch.expect("a batch");
        let outcomes: Int8Array =
            batch.column(0).as_binary::<i32>().iter().map(|message| Some(decoder.append(message) as i8)).collect();
        let rows = Arc::new(decoder.finish());
        let result = RecordBatch::try_new(schema.clone(), vec![rows, Arc::new(outcomes)]).expect("a batch");
        writer.write(&result).expect("a reader");
    }
    writer.finish().expect("a reader");
}

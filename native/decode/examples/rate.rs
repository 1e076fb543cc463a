//! Measures how fast messages are decoded: `cargo run --release --example rate`.

use std::time::Instant;

use dynamic_kafka_decode::{Decoder, Outcome, Spec};

const MESSAGES: u64 = 20_000;
const FIELDS: [(&str, &str); 5] =
    [("id", "long"), ("user", "string"), ("session", "string"), ("amount", "integer"), ("x", "string")];

fn main() {
    let json: Vec<Vec<u8>> = (0..MESSAGES).map(json).collect();
    for count in [5, 4, 2] {
        measure(&format!("json, {count} columns"), &json, &format!(r#"{{"format":"json",{}}}"#, schema(count)));
    }
    let csv: Vec<Vec<u8>> = (0..MESSAGES).map(csv).collect();
    measure(
        "csv, 5 columns",
        &csv,
        &format!(r#"{{"format":"csv","delimiter":",","quote":"\"","element_delimiter":";",{}}}"#, schema(5)),
    );
    let changes: Vec<Vec<u8>> = (0..MESSAGES).map(change).collect();
    let envelope = r#""images":["before","after"],"kind":"op","inserts":["c"],"update":"u","delete":"d","metadata":[]"#;
    measure("debezium updates", &changes, &format!(r#"{{"format":"changelog",{envelope},{}}}"#, schema(5)));
    let avro: Vec<Vec<u8>> = (0..MESSAGES).map(avro).collect();
    let (mut fields, mut steps) = (Vec::new(), Vec::new());
    for (at, (name, kind)) in FIELDS.iter().enumerate() {
        fields.push(format!(r#"{{"name":"{name}","column":{at},"step":{}}}"#, 2 * at + 2));
        steps.push(format!(r#"{{"type":"union","branches":[1,{}]}}"#, 2 * at + 3));
        steps.push(format!(r#"{{"type":"{}"}}"#, kind.replace("integer", "int")));
    }
    let record = format!(r#"{{"type":"record","fields":[{}],"defaults":[]}}"#, fields.join(","));
    let plan = format!(r#""plan":{{"steps":[{record},{{"type":"null"}},{}]}}"#, steps.join(","));
    measure("avro, 5 columns", &avro, &format!(r#"{{"format":"avro",{},{plan}}}"#, schema(5)));
    let protobuf: Vec<Vec<u8>> = (0..MESSAGES).map(protobuf).collect();
    for count in [5, 2] {
        measure(&format!("protobuf, {count} columns"), &protobuf, &protobuf_spec(count));
    }
}

/// Return the spec for a message with the fields of `FIELDS`, without presence, of which some are wanted.
fn protobuf_spec(count: usize) -> String {
    let field = |(at, (_, kind)): (usize, &(&str, &str))| {
        let kind = kind.replace("long", "int64").replace("integer", "int32");
        let column = if at < count { format!(r#","column":{at},"default":"AA==""#) } else { String::new() };
        format!(r#"{{"number":{},"kind":"{kind}"{column}}}"#, at + 1)
    };
    let fields: Vec<String> = FIELDS.iter().enumerate().map(field).collect();
    let plan = format!(r#"{{"fields":[{}],"columns":{count}}}"#, fields.join(","));
    format!(r#"{{"format":"protobuf",{},"plan":{{"messages":[{plan}]}}}}"#, schema(count))
}

fn measure(name: &str, messages: &[Vec<u8>], spec: &str) {
    let mut decoder = Decoder::new(&Spec::parse(spec).expect("a spec")).expect("simple types");
    let mut best = 0.0_f64;
    for _ in 0..50 {
        let began = Instant::now();
        for message in messages {
            assert_eq!(decoder.append(Some(message)), Outcome::Decoded);
        }
        assert_eq!(decoder.finish().fields().last().map(|f| f.name().as_str()), Some("__error"));
        best = best.max(messages.len() as f64 / began.elapsed().as_secs_f64());
    }
    println!("{name} of {} bytes: {:.2} M messages/s", messages[0].len(), best / 1e6);
}

fn schema(count: usize) -> String {
    let fields: Vec<String> =
        FIELDS[..count].iter().map(|(name, kind)| format!(r#"{{"name":"{name}","type":"{kind}"}}"#)).collect();
    format!(r#""schema":{{"fields":[{}]}}"#, fields.join(","))
}

/// The message of `benchmarks/records.py`.
fn json(i: u64) -> Vec<u8> {
    let mixed = mixed(i);
    let text = format!(
        "{{\"id\":{i:10},\"user\":\"user-{:07}\",\"session\":\"{mixed:016x}\",\"amount\":{:5},\"x\":\"",
        mixed >> 44,
        mixed % 100_000
    );
    format!("{text}{:x<1$}\"}}", "", 118 - text.len()).into_bytes()
}

/// The same record in CSV.
fn csv(i: u64) -> Vec<u8> {
    let mixed = mixed(i);
    format!("{i},user-{:07},{mixed:016x},{},{:x<40}", mixed >> 44, mixed % 100_000, "").into_bytes()
}

/// An update of the record, with what Debezium writes beside it.
fn change(i: u64) -> Vec<u8> {
    let row = String::from_utf8(json(i)).expect("a text");
    let source = r#""source":{"version":"3.0.8.Final","connector":"postgresql","name":"shop","ts_ms":1795287122800,
        "snapshot":"false","db":"postgres","sequence":"[null,\"22220296\"]","schema":"public","table":"orders","lsn":22220296}"#;
    format!(r#"{{"before":{row},"after":{row},{source},"transaction":null,"op":"u","ts_ms":1795287123025}}"#)
        .into_bytes()
}

/// The same record in Avro, each field a union with null.
fn avro(i: u64) -> Vec<u8> {
    let mixed = mixed(i);
    let mut message = Vec::new();
    let texts = [format!("user-{:07}", mixed >> 44), format!("{mixed:016x}"), "x".repeat(40)];
    long(2 * i, &mut message);
    for (at, text) in texts.iter().enumerate() {
        if at == 2 {
            long(2 * (mixed % 100_000), &mut message);
        }
        message.push(2);
        message.push(2 * text.len() as u8);
        message.extend_from_slice(text.as_bytes());
    }
    message
}

/// The same record in Protobuf.
fn protobuf(i: u64) -> Vec<u8> {
    let mixed = mixed(i);
    let mut message = vec![0x08];
    varint(1_000_000_000 + i, &mut message);
    for (tag, text) in [(0x12, format!("user-{:07}", mixed >> 44)), (0x1A, format!("{mixed:016x}"))] {
        message.extend([tag, text.len() as u8]);
        message.extend_from_slice(text.as_bytes());
    }
    message.push(0x20);
    varint(mixed % 100_000, &mut message);
    message.extend([0x2A, 52]);
    message.extend([b'x'; 52]);
    message
}

fn long(zigzag: u64, message: &mut Vec<u8>) {
    message.push(2);
    varint(zigzag, message);
}

fn varint(value: u64, message: &mut Vec<u8>) {
    let mut left = value;
    while left > 0x7F {
        message.push(left as u8 | 0x80);
        left >>= 7;
    }
    message.push(left as u8);
}

fn mixed(i: u64) -> u64 {
    i.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

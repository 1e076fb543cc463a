//! Measures how fast messages are decoded: `cargo run --release --example rate`. An argument chooses measurements by their names.

use std::time::{Duration, Instant};

use dynamic_kafka_decode::{Decoder, Outcome, Spec};

const MESSAGES: u64 = 20_000;
/// How long each measurement takes; the best time counts.
const TIME: Duration = Duration::from_millis(300);
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
    for count in [20, 100] {
        wide(count);
    }
}

// --- wide messages, of which a query uses all columns or two ---

const KINDS: [&str; 5] = ["long", "string", "double", "integer", "string"];

fn wide(count: usize) {
    let kind = |at: usize| KINDS[at % KINDS.len()];
    let number = |i: u64, at: usize| mixed(i + at as u64) >> 40;
    let text = |i: u64, at: usize| format!("{:016x}", mixed(i * 7 + at as u64));
    let value = |i: u64, at: usize| match kind(at) {
        "string" => text(i, at),
        "double" => format!("{}.{:02}", number(i, at) % 10_000, i % 100),
        _ => number(i, at).to_string(),
    };
    let json = |i: u64| {
        let quote = |at: usize| if kind(at) == "string" { "\"" } else { "" };
        let fields = (0..count).map(|at| format!("\"column_{at}\":{0}{1}{0}", quote(at), value(i, at)));
        format!("{{{}}}", fields.collect::<Vec<_>>().join(",")).into_bytes()
    };
    let csv = |i: u64| (0..count).map(|at| value(i, at)).collect::<Vec<_>>().join(",").into_bytes();
    let binary = |i: u64, is_avro: bool| {
        let mut message = Vec::new();
        for at in 0..count {
            let (mut tag, times) = if is_avro { (vec![2], 2) } else { (Vec::new(), 1) };
            let wire = match kind(at) {
                "string" => 2,
                "double" => 1,
                _ => 0,
            };
            if !is_avro {
                varint((at as u64 + 1) << 3 | wire, &mut tag);
            }
            message.extend(tag);
            match kind(at) {
                "string" => {
                    varint(16 * times, &mut message);
                    message.extend_from_slice(text(i, at).as_bytes());
                }
                "double" => message.extend_from_slice(&(number(i, at) as f64 / 100.0).to_le_bytes()),
                _ => varint(number(i, at) * times, &mut message),
            }
        }
        message
    };
    let steps = KINDS.map(|kind| format!(r#"{{"type":"{}"}}"#, kind.replace("integer", "int"))).join(",");
    let unions = (0..KINDS.len()).map(|at| format!(r#"{{"type":"union","branches":[1,{}]}}"#, at + 2));
    let fields = (0..count)
        .map(|at| format!(r#"{{"name":"column_{at}","column":{at},"step":{}}}"#, 2 + KINDS.len() + at % KINDS.len()));
    let avro_plan = format!(
        r#"{{"steps":[{{"type":"record","fields":[{}],"defaults":[]}},{{"type":"null"}},{steps},{}]}}"#,
        fields.collect::<Vec<_>>().join(","),
        unions.collect::<Vec<_>>().join(",")
    );
    let fields = (0..count).map(|at| {
        let kind = kind(at).replace("long", "int64").replace("integer", "int32");
        format!(r#"{{"number":{},"kind":"{kind}","column":{at}}}"#, at + 1)
    });
    let protobuf_plan =
        format!(r#"{{"messages":[{{"fields":[{}],"columns":{count}}}]}}"#, fields.collect::<Vec<_>>().join(","));
    let messages = |of: &dyn Fn(u64) -> Vec<u8>| (0..MESSAGES / 10).map(of).collect::<Vec<_>>();
    let formats = [
        ("json", messages(&json), String::new()),
        ("csv", messages(&csv), r#","delimiter":",","quote":"\"","element_delimiter":";""#.to_owned()),
        ("avro", messages(&|i| binary(i, true)), format!(r#","plan":{avro_plan}"#)),
        ("protobuf", messages(&|i| binary(i, false)), format!(r#","plan":{protobuf_plan}"#)),
    ];
    for (format, messages, more) in formats {
        for used in [count, 2] {
            let field = |at: usize| {
                let unused = if at % (count / used) == 0 { "" } else { r#""unused":true"# };
                format!(r#"{{"name":"column_{at}","type":"{}","metadata":{{{unused}}}}}"#, kind(at))
            };
            let fields = (0..count).map(field).collect::<Vec<_>>().join(",");
            let spec = format!(r#"{{"format":"{format}"{more},"schema":{{"fields":[{fields}]}}}}"#);
            measure(&format!("{format}, {used} of {count} columns"), &messages, &spec);
        }
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
    if std::env::args().nth(1).is_some_and(|part| !name.contains(&part)) {
        return;
    }
    let mut decoder = Decoder::new(&Spec::parse(spec).expect("a spec")).expect("simple types");
    let mut best = 0.0_f64;
    let end = Instant::now() + TIME;
    while Instant::now() < end {
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

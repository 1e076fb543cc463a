//! Measures how fast messages are decoded: `cargo run --release --example rate`.

use std::time::Instant;

use arrow_schema::{DataType, Field, Fields};
use dynamic_kafka_decode::{Decoder, Outcome, json};

const MESSAGES: usize = 20_000;

fn main() {
    let messages: Vec<Vec<u8>> = (0..MESSAGES as u64).map(message).collect();
    let five = [
        ("id", DataType::Int64),
        ("user", DataType::Utf8),
        ("session", DataType::Utf8),
        ("amount", DataType::Int32),
        ("x", DataType::Utf8),
    ];
    for count in [5, 4, 2] {
        let columns: Fields = five[..count].iter().map(|(name, kind)| Field::new(*name, kind.clone(), true)).collect();
        let mut decoder = Decoder::json(&columns, json::Options::default()).expect("simple types");
        let mut best = 0.0_f64;
        for _ in 0..50 {
            let began = Instant::now();
            for message in &messages {
                assert_eq!(decoder.append(Some(message)), Outcome::Decoded);
            }
            assert_eq!(decoder.finish().fields().len(), count);
            best = best.max(MESSAGES as f64 / began.elapsed().as_secs_f64());
        }
        println!("json, {count} columns of {} bytes: {:.2} M messages/s", messages[0].len(), best / 1e6);
    }
}

/// The message of `benchmarks/records.py`.
fn message(i: u64) -> Vec<u8> {
    let mixed = i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let user = mixed >> 44;
    let text = format!(
        "{{\"id\":{i:10},\"user\":\"user-{user:07}\",\"session\":\"{mixed:016x}\",\"amount\":{:5},\"x\":\"",
        mixed % 100_000
    );
    format!("{text}{:x<1$}\"}}", "", 118 - text.len()).into_bytes()
}

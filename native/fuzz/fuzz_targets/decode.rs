//! Any bytes may be a message. No decoder panics, none uses memory that is not its own (AddressSanitizer watches), and what
//! it makes is a valid Arrow array with one row for each message.

#![no_main]

use std::cell::RefCell;

use arrow_array::Array;
use dynamic_kafka_decode::{Decoder, Outcome, Spec};
use libfuzzer_sys::fuzz_target;

const SPECS: &[&str] = &[
    include_str!("../specs/json.json"),
    include_str!("../specs/avro.json"),
    include_str!("../specs/debezium.json"),
    include_str!("../specs/canal.json"),
    include_str!("../specs/csv.json"),
    include_str!("../specs/protobuf.json"),
];

thread_local! {
    static DECODERS: RefCell<Vec<Decoder>> = RefCell::new(SPECS.iter().map(|text| decoder(text)).collect());
}

fn decoder(spec: &str) -> Decoder {
    Decoder::new(&Spec::parse(spec).expect("the specs are right")).expect("their columns are decoded")
}

// The first byte chooses the decoder, 0xfe ends a message.
fuzz_target!(|data: &[u8]| {
    let Some((&which, rest)) = data.split_first() else { return };
    let messages: Vec<&[u8]> = rest.split(|&byte| byte == 0xfe).collect();
    let (outcomes, rows) = DECODERS.with_borrow_mut(|decoders| {
        let decoder = &mut decoders[usize::from(which) % SPECS.len()];
        let outcomes: Vec<Outcome> = messages.iter().map(|&message| decoder.append(Some(message))).collect();
        (outcomes, decoder.finish())
    });
    assert_eq!(rows.len(), messages.len());
    for (i, outcome) in outcomes.iter().enumerate() {
        assert_eq!(rows.is_null(i), !matches!(outcome, Outcome::Decoded | Outcome::Failed));
    }
    rows.to_data().validate_full().expect("the columns are valid");
});

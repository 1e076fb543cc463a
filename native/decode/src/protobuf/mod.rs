//! The formats `protobuf` and `protobuf-confluent`: a message is in Protobuf's wire format.
//!
//! Python makes a plan from the descriptor with Google's library (`formats/protobuf/plan.py`): the number, the kind and the
//! column of each field, and what a column gets if its field is missing. So presence, defaults, closed enums and the features
//! of editions are decided by the library, which never sees a message.
//!
//! | column | field |
//! |---|---|
//! | BOOLEAN | bool |
//! | TINYINT, SMALLINT, INT, BIGINT | whole numbers and enums, within the type's range |
//! | INT, BIGINT | unsigned numbers of the same size, which wrap around as in Java |
//! | FLOAT, DOUBLE | float, double |
//! | STRING | string of valid UTF-8, enum by its name; Google's JSON values |
//! | BYTES | bytes |
//! | TIMESTAMP, TIMESTAMP_LTZ | `google.protobuf.Timestamp` of the years 1 to 9999 |
//! | INTERVAL DAY TO SECOND | `google.protobuf.Duration` |
//! | ROW | message or group |
//! | ARRAY | repeated field, packed or not |
//! | MAP | map |
//! | the type of its value | one of Google's wrappers |
//!
//! A message as serializers write it becomes columns at once (`rows.rs`). Any other one, in which a message comes twice and has
//! to be merged for example, is made such a message first (`tree.rs`), which also finds what is damaged and which required
//! fields are missing. Unknown fields are skipped, and so are extensions, as in Flink. Fields that are not wanted are checked
//! as Google's parser checks them: a text that is not UTF-8 or a damaged inner message fails the whole message.
//!
//! A tree takes memory in proportion to its message. Arrays and maps have a limit of values, because an element without bytes
//! may be a struct of many columns.
//!
//! No crate reads the wire format. Measured with flat messages of 94 bytes on one core: prost-reflect, which needs no code
//! generated for a message type, makes an object of 2.7 million messages a second, and those would have to become columns then.
//! This module makes columns of 14 million.

mod header;
mod json;
mod plan;
mod rows;
mod tree;
mod wire;

use serde_json::Value;

use crate::columns::Struct;
use crate::fault::{Failure, Unsupported};
use crate::schema_ids::Plans;
use plan::Plan;
use rows::{Reader, Stop};

/// The most missing fields that an error names.
const MOST_SHOWN: usize = 20;

/// How messages are read.
#[derive(Debug, Clone)]
pub(crate) struct Messages {
    pub(crate) plans: Plans<Plan>,
    /// Whether a message that cannot be read has no row instead of an error.
    ignore_errors: bool,
}

impl Messages {
    /// Return what reads the messages of a spec.
    pub(crate) fn parse(spec: &Value) -> Result<Self, Unsupported> {
        let with_ids = spec["format"] == "protobuf-confluent";
        Ok(Self { plans: Plans::parse(spec, with_ids)?, ignore_errors: spec["ignore_parse_errors"] == true })
    }
}

/// Append the columns of a message, and return whether it has a row. If not, a part of them may be there.
pub(crate) fn read(
    message: &[u8],
    header: Option<&[u8]>,
    columns: &mut Struct,
    messages: &mut Messages,
) -> Result<bool, Failure> {
    let found = match messages.plans.plan(message, header) {
        Ok((plan, body)) => row(body, columns, plan),
        Err(words) => Err(Failure::Message(words.to_string())),
    };
    match found {
        Err(Failure::Message(_)) if messages.ignore_errors => Ok(false),
        other => other.map(|()| true),
    }
}

fn row(message: &[u8], columns: &mut Struct, plan: &Plan) -> Result<(), Failure> {
    let len = columns.len;
    match Reader::new(plan, message.len(), false).read(message, columns) {
        Ok(()) => Ok(()),
        Err(Stop::Full) => Err(Failure::Full),
        Err(_) => {
            columns.truncate(len);
            irregular_row(message, columns, plan)
        }
    }
}

/// Append the columns of a message that is made regular, or fail with the reason why it cannot be read.
#[cold]
fn irregular_row(message: &[u8], columns: &mut Struct, plan: &Plan) -> Result<(), Failure> {
    let name = &plan.name;
    let tree = tree::parse(plan, 0, message, tree::MOST_LEVELS)
        .map_err(|fault| Failure::Message(format!("Error parsing message of type '{name}': {}", fault.text())))?;
    let mut lacking = Vec::new();
    tree::lacking(plan, &plan.messages[0], &tree, "", MOST_SHOWN, &mut lacking);
    if !lacking.is_empty() {
        let lacking = lacking.join(", ");
        return Err(Failure::Message(format!("Message of type '{name}' lacks required fields: {lacking}")));
    }
    let mut regular = Vec::with_capacity(message.len());
    tree::write(plan, &plan.messages[0], &tree, &mut regular);
    drop(tree);
    let mut reader = Reader::new(plan, message.len(), true);
    reader.read(&regular, columns).map_err(|stop| match stop {
        Stop::Full => Failure::Full,
        Stop::Misfit => Failure::Message(reader.misfit()),
        Stop::Irregular => Failure::Message(format!(
            "It has another form than the plan of '{name}'; this is a defect of pyspark-dynamic-kafka"
        )),
    })
}

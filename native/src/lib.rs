//! The native kernel of pyspark-dynamic-kafka: from Kafka's messages to Arrow columns, without a Python object for each.

pub mod columns;
pub mod consumer;
pub mod librdkafka;
#[cfg(not(test))] // a test would have to be linked with Python
mod python;

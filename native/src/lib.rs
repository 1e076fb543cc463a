//! The native kernel of pyspark-dynamic-kafka: from Kafka's messages to Arrow columns and back, without a Python object for each.

#[cfg(not(test))] // a test would have to be linked with Python
mod calls;
pub mod columns;
pub mod consumer;
#[cfg(not(test))]
mod decoder;
#[cfg(not(test))]
mod encoder;
pub mod librdkafka;
pub mod murmur2;
pub mod producer;
#[cfg(not(test))]
mod python;

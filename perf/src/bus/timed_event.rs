//! The event that all buses carry.

use std::time::{SystemTime, UNIX_EPOCH};

use doorbell::bus::StreamEvent;
use serde::{Deserialize, Serialize};

/// An event with the time at which it was handed to its bus, or was due.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TimedEvent {
    pub stream: String,
    /// Its number in its stream, from 1.
    #[serde(default)]
    pub number: u64,
    /// Nanoseconds since 1970, which other processes can compare.
    pub sent: u64,
    pub body: String,
}

impl TimedEvent {
    /// An event that is handed to the bus now.
    pub fn now(stream: &str, number: u64) -> Self {
        Self::sent_at(stream, number, now())
    }

    /// An event whose latency runs from `sent`.
    pub fn sent_at(stream: &str, number: u64, sent: u64) -> Self {
        Self {
            stream: stream.to_owned(),
            number,
            sent,
            // Small, as most events are.
            body: "x".repeat(100),
        }
    }
}

impl StreamEvent for TimedEvent {
    fn stream_key(&self) -> &str {
        &self.stream
    }

    fn seq(&self) -> u64 {
        self.number
    }

    fn with_seq(mut self, seq: u64) -> Self {
        self.number = seq;
        self
    }
}

/// The wall clock in nanoseconds, which all processes of a machine share.
pub fn now() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a clock after 1970");
    u64::try_from(since.as_nanos()).expect("a clock before 2554")
}

/// The name of a stream.
pub fn stream_name(index: usize) -> String {
    format!("stream-{index:04}")
}

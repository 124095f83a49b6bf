//! What the bus asks of an event type.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// An event of a stream: it knows its stream and its number there, and can be written as JSON and read back.
///
/// ```
/// use doorbell::bus::StreamEvent;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Clone, Serialize, Deserialize)]
/// struct Reading {
///     sensor: String,
///     #[serde(default)] // the store keeps the number beside the event
///     seq: u64,
///     celsius: f64,
/// }
///
/// impl StreamEvent for Reading {
///     fn stream_key(&self) -> &str {
///         &self.sensor
///     }
///     fn seq(&self) -> u64 {
///         self.seq
///     }
///     fn with_seq(mut self, seq: u64) -> Self {
///         self.seq = seq;
///         self
///     }
/// }
///
/// let reading = Reading { sensor: "roof".to_owned(), seq: 0, celsius: 21.5 };
/// assert_eq!(reading.with_seq(7).seq(), 7);
/// ```
pub trait StreamEvent: Serialize + DeserializeOwned + Clone + Send + Sync + 'static {
    /// The stream that the event belongs to. See [`check_stream_key`](crate::event::check_stream_key) for what is possible.
    fn stream_key(&self) -> &str;

    /// The event's number in its stream; 0 for an event that has none yet.
    fn seq(&self) -> u64;

    /// The same event with another number.
    #[must_use]
    fn with_seq(self, seq: u64) -> Self;
}

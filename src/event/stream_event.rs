//! The trait for event types.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// An event of a stream. It has the key of its stream and its number there, and can be converted to JSON and back.
///
/// ```
/// use doorbell::event::StreamEvent;
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
    /// Returns the key of the event's stream. [`check_stream_key`](crate::event::check_stream_key) defines which keys are valid.
    fn stream_key(&self) -> &str;

    /// Returns the event's number in its stream, or 0 if it has none yet.
    fn seq(&self) -> u64;

    /// Returns the same event with another number.
    #[must_use]
    fn with_seq(self, seq: u64) -> Self;
}

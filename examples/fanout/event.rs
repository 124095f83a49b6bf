//! What is published.

use std::sync::Arc;
use std::time::Instant;

/// One line of the input.
///
/// A subscriber that receives by value clones the event, and that is one reference count more: the text is shared.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// Counts the events from 1.
    pub(crate) number: u64,
    /// When it was published or, in a paced run, when it was due: latency runs from here.
    pub(crate) due: Instant,
    /// The line, without its end.
    pub(crate) line: Arc<str>,
}

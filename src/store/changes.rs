//! What has changed since a point in a store's history.

use std::fmt;
use std::sync::Arc;

/// A point in a store's history, from which [`Store::changed_since`](super::Store::changed_since) goes on. What is inside is the
/// store's own affair.
///
/// ```
/// let watermark = doorbell::store::Watermark::new("7:12:9");
/// assert_eq!(watermark.as_str(), "7:12:9");
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Watermark(Arc<str>);

impl Watermark {
    /// A watermark of a store's own making.
    #[must_use]
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// What the store has put in.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Watermark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watermark({})", self.0)
    }
}

/// A stream that has changed.
///
/// ```
/// use doorbell::store::ChangedStream;
///
/// let changed = ChangedStream { stream_key: "agent-1".into(), high_water: 6 };
/// assert_eq!(changed.high_water, 6);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChangedStream {
    /// The stream.
    pub stream_key: Arc<str>,
    /// The highest number in the stream.
    pub high_water: u64,
}

/// One page of what has changed.
///
/// ```
/// use doorbell::store::{Changes, Watermark};
///
/// let nothing = Changes { streams: Vec::new(), watermark: Watermark::new("1"), more: false, complete: false };
/// assert!(nothing.streams.is_empty());
/// ```
#[derive(Clone, Debug)]
pub struct Changes {
    /// The streams.
    pub streams: Vec<ChangedStream>,
    /// From where the next call goes on: the next page if there is `more`, what changes later if not.
    pub watermark: Watermark,
    /// Whether the answer has another page. What becomes visible while the pages are read is on one of them, or above the last
    /// page's watermark, or both: never in between.
    pub more: bool,
    /// Whether the answer lists all streams of the store, whatever changed: there was no watermark, or it means nothing here (a
    /// standby, another incarnation of the server).
    pub complete: bool,
}

//! Lists of streams that have changed since a point in a store's history.

use std::fmt;
use std::sync::Arc;

/// A point in a store's history, from which [`Store::changed_since`](super::Store::changed_since) continues. Its content is opaque
/// and specific to the store.
///
/// ```
/// let watermark = doorbell::store::Watermark::new("7:12:9");
/// assert_eq!(watermark.as_str(), "7:12:9");
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Watermark {
    text: Arc<str>,
    history: Option<Arc<str>>,
}

impl Watermark {
    /// Creates a watermark, for implementations of a store.
    #[must_use]
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self {
            text: text.into(),
            history: None,
        }
    }

    /// Sets the identity of the history that the watermark is a point of. If it changes, a bus checks whether the events that it has
    /// delivered are still the store's.
    ///
    /// ```
    /// let watermark = doorbell::store::Watermark::new("7:12:9").in_history("7");
    /// assert_eq!(watermark.history(), Some("7"));
    /// ```
    #[must_use]
    pub fn in_history(mut self, identity: impl Into<Arc<str>>) -> Self {
        self.history = Some(identity.into());
        self
    }

    /// Returns the identity of the history, if the store has set it.
    #[must_use]
    pub fn history(&self) -> Option<&str> {
        self.history.as_deref()
    }

    /// Returns the content that the store has put in.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for Watermark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watermark({})", self.text)
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
    /// The highest sequence number of the stream.
    pub high_water: u64,
}

/// A page of streams that have changed.
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
    /// The watermark for the next call, which continues with the next page if there is `more`, and with later changes otherwise.
    pub watermark: Watermark,
    /// Whether there is another page. A change that becomes visible while the pages are read is on one of them, after the last
    /// page's watermark, or both.
    pub more: bool,
    /// Whether all streams of the store are listed, changed or not, because there was no watermark or it is meaningless here (for
    /// example on a standby, or after the server was restarted).
    pub complete: bool,
}

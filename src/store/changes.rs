//! Lists of streams that have changed since a point in a store's history.

use std::fmt;
use std::sync::Arc;

use super::EventId;

/// A point in a store's history, from which [`Store::changed_since`](super::Store::changed_since) continues. Its content is opaque
/// and specific to the store.
///
/// ```
/// let watermark = doorbell::store::Watermark::new("7:12:9");
/// assert_eq!(watermark.as_str(), "7:12:9");
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Watermark(Arc<str>);

impl Watermark {
    /// Creates a watermark, for implementations of a store.
    #[must_use]
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// Returns the watermark's text.
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

/// The last event of a stream, whether or not retention has removed it.
///
/// ```
/// use doorbell::store::StreamHead;
///
/// assert_eq!(StreamHead::default().seq, 0); // a stream that does not exist
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct StreamHead {
    /// The highest sequence number of the stream; 0 for a stream that does not exist.
    pub seq: u64,
    /// The ID of the event with this number, if the store knows it.
    pub id: Option<EventId>,
}

/// The last events of several streams, as returned by [`Store::heads`](super::Store::heads).
///
/// ```
/// use doorbell::store::{Heads, StreamHead};
///
/// let heads = Heads::new(vec![StreamHead { seq: 7, id: None }]);
/// assert_eq!((heads.streams[0].seq, heads.is_standby), (7, false));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Heads {
    /// The last event of each stream, in the order in which they were asked for.
    pub streams: Vec<StreamHead>,
    /// An event is visible at this watermark if and only if a read at the same time would have returned it. `None` if the store has no
    /// watermarks, or none that means anything now.
    pub watermark: Option<Watermark>,
    /// Whether a server has answered that may not have received all events yet.
    pub is_standby: bool,
}

impl Heads {
    /// Creates heads without a watermark, of a store that has all events.
    #[must_use]
    pub fn new(streams: Vec<StreamHead>) -> Self {
        Self {
            streams,
            watermark: None,
            is_standby: false,
        }
    }
}

/// A stream that has changed.
///
/// ```
/// use doorbell::store::{ChangedStream, StreamHead};
///
/// let changed = ChangedStream { stream_key: "agent-1".into(), head: StreamHead { seq: 6, id: None } };
/// assert_eq!(changed.head.seq, 6);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChangedStream {
    /// The stream.
    pub stream_key: Arc<str>,
    /// The last event of the stream.
    pub head: StreamHead,
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

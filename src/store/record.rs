//! What a store gives back: records, and pages of them.

use std::fmt;
use std::time::SystemTime;

use thiserror::Error;

use crate::event::StreamEvent;

/// The identity of a stored event: never given twice, not even to an event that takes another's place in its stream after a
/// failover or a restored backup.
///
/// ```
/// use doorbell::store::EventId;
///
/// assert_eq!(EventId(7).to_string(), "00000000-0000-0000-0000-000000000007");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EventId(pub u128);

impl fmt::Display for EventId {
    /// As a UUID is written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e] = [
            self.0 >> 96,
            self.0 >> 80 & 0xffff,
            self.0 >> 64 & 0xffff,
            self.0 >> 48 & 0xffff,
            self.0 & 0xffff_ffff_ffff,
        ];
        write!(f, "{a:08x}-{b:04x}-{c:04x}-{d:04x}-{e:012x}")
    }
}

/// A stored event that this build cannot read: written by a newer one, or by hand. It keeps its place in the stream.
///
/// ```
/// let unreadable = doorbell::store::Undecodable { reason: "missing field `kind`".to_owned() };
/// assert!(unreadable.to_string().contains("missing field"));
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("the stored event cannot be decoded, it stays in the store: {reason}")]
pub struct Undecodable {
    /// What the decoder says.
    pub reason: String,
}

/// One place in a stream: its number, and the event there.
///
/// ```
/// use doorbell::bus::{FleetEvent, StreamEvent};
/// use doorbell::store::Record;
///
/// let record = Record::from_event(FleetEvent::custom("agent-1", "note", "hello").with_seq(3));
/// assert_eq!((record.seq, record.id), (3, None));
/// ```
#[derive(Clone, Debug)]
pub struct Record<E> {
    /// The event's number in its stream.
    pub seq: u64,
    /// Its identity, where the store keeps one.
    pub id: Option<EventId>,
    /// When it was appended, by the store's clock, where the store keeps that.
    pub appended_at: Option<SystemTime>,
    /// The event, carrying `seq`; or why it cannot be read.
    pub event: Result<E, Undecodable>,
}

impl<E: StreamEvent> Record<E> {
    /// A record of an event that carries its number.
    #[must_use]
    pub fn from_event(event: E) -> Self {
        Self {
            seq: event.seq(),
            id: None,
            appended_at: None,
            event: Ok(event),
        }
    }
}

/// A stretch of one stream, as [`Store::replay`](super::Store::replay) gives it.
///
/// ```
/// use doorbell::bus::{FleetEvent, StreamEvent};
/// use doorbell::store::Page;
///
/// let page = Page::from_events(vec![FleetEvent::custom("agent-1", "note", "hello").with_seq(1)]);
/// assert_eq!((page.records.len(), page.low_water), (1, 0));
/// ```
#[derive(Clone, Debug)]
pub struct Page<E> {
    /// The records, by ascending number, without a hole: the first is the lowest above both `after` and `low_water`. Fewer
    /// than the limit, or none, means that there were no more when the page was read.
    pub records: Vec<Record<E>>,
    /// The stream's floor: events up to this number have been removed by retention. 0 if none has.
    pub low_water: u64,
}

impl<E: StreamEvent> Page<E> {
    /// A page of events that carry their numbers, of a stream that is never trimmed.
    #[must_use]
    pub fn from_events(events: Vec<E>) -> Self {
        Self {
            records: events.into_iter().map(Record::from_event).collect(),
            low_water: 0,
        }
    }
}

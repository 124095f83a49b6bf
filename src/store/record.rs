//! Records and pages of records, as stores return them.

use std::fmt;
use std::time::SystemTime;

use thiserror::Error;

use crate::event::StreamEvent;

/// The ID of a stored event. It is never reused, not even for an event that gets the same sequence number in the same stream
/// after a failover or a restored backup.
///
/// ```
/// use doorbell::store::EventId;
///
/// assert_eq!(EventId(7).to_string(), "00000000-0000-0000-0000-000000000007");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EventId(pub u128);

impl fmt::Display for EventId {
    /// Formats the ID as a UUID.
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

/// The reason why this build cannot decode a stored event, written by a newer build or a manual SQL statement. The event stays in
/// the stream.
///
/// ```
/// let unreadable = doorbell::store::Undecodable { reason: "missing field `kind`".to_owned() };
/// assert!(unreadable.to_string().contains("missing field"));
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("the stored event cannot be decoded (it stays in the store): {reason}")]
pub struct Undecodable {
    /// The decoder's message.
    pub reason: String,
}

/// An event in a stream, with the number, ID and time that the store has assigned to it.
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
    /// The event's sequence number in its stream.
    pub seq: u64,
    /// The event's ID, if the store assigns one.
    pub id: Option<EventId>,
    /// The ID of the stream's event before this one, if the store records it. `None` for the first event.
    ///
    /// It proves what the event follows: a reader that had another event before has read another history, for example before a failover
    /// to a standby that lacked events.
    pub previous_id: Option<EventId>,
    /// The time when the event was appended, by the store's clock, if the store records it.
    pub appended_at: Option<SystemTime>,
    /// The event with its number, or the reason why it cannot be decoded.
    pub event: Result<E, Undecodable>,
}

impl<E: StreamEvent> Record<E> {
    /// Creates a record from an event that has its number.
    #[must_use]
    pub fn from_event(event: E) -> Self {
        Self {
            seq: event.seq(),
            id: None,
            previous_id: None,
            appended_at: None,
            event: Ok(event),
        }
    }
}

/// Consecutive records of a stream, as returned by [`Store::replay`](super::Store::replay).
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
    /// The records in ascending order, starting with the lowest number above `after`. The store lacks events whose numbers are left
    /// out, and will never have them; a bus reports them as a gap. If there are fewer records than the limit, and `more` is false, the
    /// end of the stream was reached.
    pub records: Vec<Record<E>>,
    /// The stream's low-water mark: retention has removed the events up to this number. It is 0 if no event was removed.
    /// If a store removes the last events of a stream without raising it, subscriptions that lack them wait for the next event.
    pub low_water: u64,
    /// The ID of the event with the number `low_water`, if the store knows it, and that event would otherwise be on this page or after it.
    pub low_water_id: Option<EventId>,
    /// Whether the store has left out events that follow, because the page would be too large or take too long to read. There may be no
    /// record at all, for example if another stream of the same [`replay_many`](super::Store::replay_many) was that large. Read on after
    /// the last record.
    pub more: bool,
}

impl<E: StreamEvent> Page<E> {
    /// Creates a page from events that have their numbers, with a low-water mark of 0.
    #[must_use]
    pub fn from_events(events: Vec<E>) -> Self {
        Self {
            records: events.into_iter().map(Record::from_event).collect(),
            low_water: 0,
            low_water_id: None,
            more: false,
        }
    }
}

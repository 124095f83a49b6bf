//! What is delivered to whom, without any I/O: the streams that somebody here listens to, how far each is delivered, what the
//! doorbells announce, and the rings through which events go out.
//!
//! A worker asks the hub what to read ([`Hub::take_reads`]), reads it from the store, and brings it back ([`Hub::deliver`]).
//! The hub lets through what is next in its stream, and nothing else: so whatever arrives, from doorbells, sweeps, or local
//! appends, in whatever order and however often, goes out once and in order.

mod delivery;
mod item;
mod lag_accounting;
mod notifications;
mod publish_queue;
mod recent;
mod rewind;
mod start;
mod stream;
mod table;

#[cfg(feature = "postgres")]
pub(crate) use delivery::DeliveryCursor;
pub(crate) use item::{Era, Item, StreamNotice, StreamNoticeKind};
#[cfg(feature = "postgres")]
pub(crate) use notifications::Announced;
pub(crate) use rewind::PastRewind;
pub(crate) use stream::{StreamRef, StreamSlot};
pub(crate) use table::{Attached, Hub, HubSettings, StartPosition, StartSignal, UNSET};

//! What is delivered to whom, without any I/O: the streams that somebody here listens to, how far each is delivered, what the
//! doorbells announce, and the rings through which events go out.
//!
//! A worker asks the hub what to read ([`Hub::take_ranges`]), reads it from the store, and brings it back ([`Hub::deliver`]).
//! The hub lets through what is next in its stream, and nothing else: so whatever arrives, from doorbells, sweeps, or local
//! appends, in whatever order and however often, goes out once and in order.

mod delivering;
mod hearing;
mod item;
mod outbox;
mod recent;
mod rewinding;
mod starting;
mod stream;
mod table;
mod uneven;

#[cfg(feature = "postgres")]
pub(crate) use delivering::Cursor;
#[cfg(feature = "postgres")]
pub(crate) use hearing::Heard;
pub(crate) use item::{Era, Item, Notice, NoticeKind};
pub(crate) use rewinding::PastRewind;
pub(crate) use stream::{Slot, StreamRef};
pub(crate) use table::{Attached, Hub, HubSettings, Start, StartGate, UNSET};

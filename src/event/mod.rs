//! Events of the bus: the trait for event types, the rules for stream keys, and a ready-made event type.
//!
//! ```
//! use doorbell::event::{FleetEvent, StreamEvent};
//!
//! let event = FleetEvent::custom("agent-1", "note", "hello");
//! assert_eq!(event.stream_key(), "agent-1");
//! assert_eq!(event.seq(), 0); // the store assigns the sequence number when it appends the event
//! ```

mod fleet_event;
#[cfg(feature = "bus")]
pub(crate) mod foreign;
mod stream_event;
mod stream_key;

pub use fleet_event::{FleetEvent, FleetEventKind};
pub use stream_event::StreamEvent;
pub use stream_key::{InvalidStreamKey, MAX_STREAM_KEY_BYTES, check_stream_key};

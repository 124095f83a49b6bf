//! The event bus: every subscriber of a stream gets every event that the store holds, once and in order.

mod fleet_event;
mod stream_event;

pub use fleet_event::{FleetEvent, FleetEventKind};
pub use stream_event::StreamEvent;

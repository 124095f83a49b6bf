//! `doorbell::bus` without what does I/O.

#[path = "../../src/bus/bus_event.rs"]
mod bus_event;
#[path = "../../src/bus/error.rs"]
mod error;
#[path = "../../src/event/fleet_event.rs"]
mod fleet_event;
#[path = "../../src/bus/gate.rs"]
mod gate;
#[path = "../../src/bus/hub/mod.rs"]
pub(crate) mod hub;
#[path = "../../src/bus/history_cache.rs"]
pub(crate) mod history_cache;
#[path = "../../src/bus/payload.rs"]
pub(crate) mod payload;
#[path = "../../src/bus/stats.rs"]
pub(crate) mod stats;
#[path = "../../src/event/stream_event.rs"]
mod stream_event;
#[path = "../../src/bus/subscription/mod.rs"]
mod subscription;

pub(crate) use bus_event::{BusEvent, Gap, Rewound};
pub(crate) use error::BusError;
pub(crate) use fleet_event::FleetEvent;
pub(crate) use stream_event::StreamEvent;
pub(crate) use subscription::{BusSubscription, OnSlow};

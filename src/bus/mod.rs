//! The event bus: every subscriber of a stream gets every event that the store holds, once and in order.

mod bus_event;
#[cfg(feature = "postgres")]
mod distributed;
mod error;
mod event_bus;
mod fleet_event;
mod gate;
mod hub;
mod local;
mod options;
mod pages;
mod pointer;
mod stats;
mod stream_event;
mod subscription;

pub use bus_event::{BusEvent, Gap, Rewound};
#[cfg(feature = "postgres")]
pub use distributed::{BusHealth, BusState, DEFAULT_CHANNEL, DistributedBus, DistributedBusBuilder};
pub use error::BusError;
pub use event_bus::EventBus;
pub use fleet_event::{FleetEvent, FleetEventKind};
pub use local::LocalBus;
pub use options::SubscribeOptions;
pub use pointer::doorbell_payload;
pub use stats::BusStats;
pub use stream_event::StreamEvent;
pub use subscription::{BusSubscription, OnSlow, Ready};

//! The event bus: every subscriber of a stream gets every event that the store holds, once and in order.

mod bus_event;
#[cfg(feature = "postgres")]
mod distributed;
mod error;
mod event_bus;
mod fleet_event;
mod gate;
#[cfg_attr(
    not(feature = "postgres"),
    allow(dead_code, reason = "the local bus needs less of it")
)]
mod hub;
mod local;
mod options;
mod pages;
#[cfg_attr(
    not(feature = "postgres"),
    allow(dead_code, reason = "only a clustered bus rings and hears")
)]
mod pointer;
mod stats;
mod stream_event;
mod subscription;
#[cfg(test)]
mod tests;

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

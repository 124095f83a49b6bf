//! The event bus: every subscriber of a stream gets every event that the store holds, once and in order.
//!
//! Events belong to streams, and have numbers there: 1, 2, 3, given by a durable [store](crate::store). The bus tells subscribers of
//! new ones.
//!
//! | bus | events are in | for |
//! |---|---|---|
//! | [`LocalBus`] | memory | one process, tests, embedded use |
//! | `DistributedBus` (feature `postgres`) | Postgres, or any [`Store`](crate::store::Store) | any number of processes |
//!
//! ```
//! use doorbell::bus::{BusEvent, EventBus, FleetEvent, LocalBus};
//!
//! # futures::executor::block_on(async {
//! let bus = LocalBus::new();
//! let mut subscription = bus.subscribe("agent-1");
//! subscription.ready().await.unwrap();
//! bus.append_and_publish(FleetEvent::custom("agent-1", "note", "hello")).await.unwrap();
//! match subscription.recv().await {
//!     Some(BusEvent::Event(event)) => assert_eq!(event.seq, 1),
//!     other => panic!("{other:?}"),
//! }
//! # });
//! ```
//!
//! Events of another type than [`FleetEvent`] implement [`StreamEvent`]; `LocalBus::<Event>::default()` and
//! `DistributedBus::builder(store).url(url).connect()` make buses for them, the latter for the events of its store.
//!
//! # What a subscription gets
//!
//! - Every event that is committed after it is [ready](BusSubscription::ready); some that were committed shortly before, perhaps.
//! - With [`after`](SubscribeOptions::after), every event after that number: history and live events in one stream.
//! - Each event once, in the order of its stream's numbers, without a hole. Streams have no order among each other.
//! - What cannot be had is said: [`Gap`] for what retention has removed, [`Rewound`] when the store's history is replaced by
//!   another, [`BusEvent::Undecodable`] for an event of a newer build, [`BusEvent::Lagged`] for those who asked to be told rather than
//!   served when they are slow.
//!
//! A subscriber that is slow reads the store at its own pace; it costs others nothing.
//!
//! # The doorbell
//!
//! In a cluster, a notification is only a doorbell: it carries the stream's key and the number, and says "look". It may be lost, come twice, or
//! be forged: what is delivered is what the store holds. On a timer, and whenever the connection was away, the bus looks for what no
//! doorbell has told (a *sweep*). So a publisher that dies between commit and doorbell makes its event late, by the sweep's
//! interval, and loses nothing.
//!
//! `docs/operations.md` of the repository is about running it: poolers, standbys, failover, retention, sizing, health.

mod bus_event;
#[cfg(feature = "postgres")]
mod distributed;
mod error;
mod event_bus;
mod gate;
mod history_cache;
#[cfg_attr(
    not(feature = "postgres"),
    allow(dead_code, reason = "the local bus needs less of it")
)]
mod hub;
mod local;
mod options;
#[cfg(feature = "postgres")]
mod payload;
mod stats;
mod subscription;
#[cfg(test)]
mod tests;

pub use crate::event::{FleetEvent, FleetEventKind, StreamEvent};
pub use bus_event::{BusEvent, Gap, Rewound};
#[cfg(feature = "postgres")]
pub use distributed::{BusHealth, BusState, DEFAULT_CHANNEL, DistributedBus, DistributedBusBuilder};
pub use error::BusError;
pub use event_bus::EventBus;
pub use local::LocalBus;
pub use options::SubscribeOptions;
#[cfg(feature = "postgres")]
pub use payload::notification_payload;
pub use stats::BusStats;
pub use subscription::{BusSubscription, OnSlow, Ready};

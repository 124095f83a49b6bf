//! An event bus: every subscriber gets every event of a durable store, once and in order.
//!
//! Events belong to streams. A [store](crate::store) appends them and numbers them 1, 2, 3 in each stream. The bus delivers new
//! events to the subscribers of their stream, in every process of a cluster.
//!
//! | bus | events are stored in | use |
//! |---|---|---|
//! | [`LocalBus`] | memory | one process, tests, embedding |
//! | `DistributedBus` (feature `postgres`) | Postgres, or any [`Store`](crate::store::Store) | any number of processes |
//!
//! Both implement [`EventBus`], so a service can take an `Arc<dyn EventBus>`.
//!
//! # Examples
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
//! # Event types
//!
//! [`FleetEvent`] is the default event type. Other types implement [`StreamEvent`]; create their bus with
//! `LocalBus::<Event>::default()` or `DistributedBus::builder(store).url(url).connect()`.
//!
//! # Guarantees
//!
//! - A subscription delivers every event that is committed after it is [ready](BusSubscription::ready). It may also deliver events
//!   that were committed shortly before.
//! - A subscription that starts [`after`](SubscribeOptions::after) a number delivers every later event: first the history, then live
//!   events.
//! - Each event is delivered once, in the order of its stream, without a gap. There is no order between streams.
//! - Events that cannot be delivered are reported by an item in their place:
//!
//!   | item | reason |
//!   |---|---|
//!   | [`BusEvent::Gap`] | retention removed events before they were delivered |
//!   | [`BusEvent::Rewound`] | the store's history was replaced by another one, for example by a failover |
//!   | [`BusEvent::Undecodable`] | this build cannot decode the event |
//!   | [`BusEvent::Lagged`] | the subscriber was slow and has chosen [`OnSlow::Report`] |
//!
//! - A slow subscriber delays neither publishers nor other subscribers. By default, it reads the events that it missed from the
//!   store.
//!
//! # Notifications
//!
//! A Postgres `NOTIFY` informs other processes that a stream has new events. It carries only the stream's key and the numbers,
//! and is only a hint: the bus reads the events from the store, and delivers what the store holds. A notification may be lost,
//! repeated or false. At an interval, and after each reconnect, the bus searches the store for events whose notification was lost
//! (a *sweep*). If a publisher dies between the commit and the notification, its event is not lost, but delivered late, by at
//! most the sweep interval.
//!
//! # Further reading
//!
//! In the repository, `docs/bus.md` is a tour of the implementation, `docs/contract-bus.md` lists every guarantee with its tests, and
//! `docs/operations.md` covers operation: poolers, standbys, failover, retention, sizing and health.

mod bus_event;
#[cfg(feature = "postgres")]
pub(crate) mod distributed;
mod error;
mod event_bus;
mod history_cache;
mod hub;
mod local;
#[cfg(feature = "postgres")]
pub(crate) mod payload;
pub(crate) mod stats;
mod subscribe_options;
mod subscription;
#[cfg(all(feature = "postgres", any(test, fuzzing)))]
pub(crate) mod tests;

pub use crate::event::{FleetEvent, FleetEventKind, StreamEvent};
pub use bus_event::{BusEvent, Gap, Rewound};
#[cfg(feature = "postgres")]
pub use distributed::{BusHealth, BusState, DEFAULT_CHANNEL, DistributedBus, DistributedBusBuilder, StoreOperation};
pub use error::BusError;
pub use event_bus::EventBus;
pub use local::LocalBus;
#[cfg(feature = "postgres")]
pub use payload::notification_payload;
pub use stats::BusStats;
pub use subscribe_options::SubscribeOptions;
pub use subscription::{BusSubscription, OnSlow, Ready};

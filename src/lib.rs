//! Fan-out for latency-sensitive services: every subscriber sees every event, in one order, with a sequence number; a slow
//! subscriber never slows a publisher, and is told exactly what it missed.
//!
//! | module | what it is |
//! |---|---|
//! | [`ring`] | the engine: a lock-free bounded broadcast ring for events of any type |
//! | [`broadcast`] | the same as a drop-in for `tokio::sync::broadcast`: change one `use` line |
//! | `cluster` (feature `cluster`) | numbered cluster events for operations consoles, spliced to a snapshot without gap or repetition |
//! | `bus` (features `bus`, `postgres`) | the event bus: every subscriber gets every event of a durable store, once and in order |
//! | `event` (the same) | what an event type provides; `FleetEvent` for services that have none of their own |
//! | `store` (the same) | the stores of the bus: in memory, and over Postgres |
//! | `listen` (feature `postgres`) | one Postgres LISTEN connection for any number of subscriptions |
//!
//! ```
//! let (publisher, mut subscriber) = doorbell::ring::channel(1024);
//! publisher.publish("ding");
//! publisher.publish("dong");
//! assert_eq!(subscriber.try_recv_seq(), Ok((1, "ding")));
//! assert_eq!(subscriber.try_recv_seq(), Ok((2, "dong")));
//! ```
//!
//! # Features
//!
//! - `tokio`: receives inside tokio tasks take part in the cooperative budget.
//! - `cluster`: the module `cluster`; brings serde.
//! - `bus`: the modules `bus` and `store`, in memory; brings serde.
//! - `postgres`: the bus over Postgres, its store, and the module `listen`; brings tokio, tokio-postgres 0.7 and sqlx 0.9, whose types
//!   are those of the pools and transactions that are passed in.
//! - `metrics`: the counters of `DistributedBus` for the recorders of the `metrics` crate, 0.24.
//!
//! Without features the crate depends on no async runtime and does no I/O; it runs on tokio, on any other executor, and on bare
//! threads.

pub mod broadcast;
#[cfg(feature = "bus")]
pub mod bus;
#[cfg(feature = "cluster")]
pub mod cluster;
#[cfg(feature = "bus")]
pub mod event;
#[cfg(feature = "postgres")]
pub mod listen;
#[cfg(feature = "postgres")]
mod pg;
pub mod ring;
#[cfg(feature = "bus")]
pub mod store;
mod sync;

#[cfg(doctest)]
mod compile_fail;

/// The examples of the README, compiled.
#[cfg(all(doctest, feature = "postgres"))]
#[doc = include_str!("../README.md")]
mod readme {}

//! Fan-out for latency-sensitive services: every subscriber gets every event, in one order, with a sequence number. A slow subscriber
//! never delays a publisher, and gets an exact count of the events that it missed.
//!
//! | module | feature | contents |
//! |---|---|---|
//! | [`ring`] | | a lock-free bounded broadcast ring for events of any type |
//! | [`broadcast`] | | a drop-in replacement for `tokio::sync::broadcast`: change one `use` line |
//! | `cluster` | `cluster` | numbered cluster events for operations consoles, which continue a snapshot without gap or repetition |
//! | `bus` | `bus` | an event bus that delivers the events of a durable store once and in order; in one process, or with `postgres` in many |
//! | `store` | `bus` | the stores of the bus: in memory, and with `postgres` over Postgres |
//! | `event` | `bus` | the trait for event types, and a ready-made one |
//! | `listen` | `postgres` | any number of subscriptions to Postgres notifications over one connection |
//!
//! # Examples
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
//! No feature is on by default. Without features the crate depends on no async runtime and does no I/O: it runs on tokio, on any other
//! executor, and on plain threads.
//!
//! - `tokio`: receives in tokio tasks take part in tokio's cooperative scheduling.
//! - `cluster`: adds the module `cluster`. Depends on serde.
//! - `bus`: adds the modules `bus`, `event` and `store`, in memory. Depends on serde and on the `sync` part of tokio, which brings neither a
//!   runtime nor I/O.
//! - `postgres`: adds the bus and the store over Postgres, and the module `listen`. Includes `bus` and `tokio`. Depends on tokio-postgres 0.7
//!   and sqlx 0.9, whose pools and transactions appear in the API.
//! - `metrics`: reports the counters of `DistributedBus` to the recorder of the `metrics` crate, version 0.24.

mod barrier;
pub mod broadcast;
#[cfg(feature = "bus")]
pub mod bus;
#[cfg(feature = "cluster")]
pub mod cluster;
#[cfg(feature = "bus")]
pub mod event;
#[cfg(all(feature = "postgres", any(test, fuzzing)))]
#[doc(hidden)]
pub mod fuzzing;
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

/// Compiles the examples of the README.
#[cfg(all(doctest, feature = "postgres"))]
#[doc = include_str!("../README.md")]
mod readme {}

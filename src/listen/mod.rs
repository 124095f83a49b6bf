//! One LISTEN connection for any number of subscriptions.
//!
//! [`ListenMultiplexer`] holds one raw connection to Postgres and listens on every channel that anybody in the process subscribes
//! to. It reconnects by itself, tells every subscriber where notifications may be missing, and is never held up by a slow one.
//!
//! ```no_run
//! use doorbell::listen::{ListenItem, ListenMultiplexer};
//!
//! # async fn example() -> Result<(), doorbell::listen::ListenError> {
//! let mux = ListenMultiplexer::connect("postgres://app@localhost/app").await?;
//! let mut jobs = mux.subscribe("jobs").await?; // the server has acknowledged it: nothing from here on is missed
//! while let Some(item) = jobs.recv().await {
//!     match item {
//!         ListenItem::Notification(job) => println!("job {}", job.payload()),
//!         // What was notified meanwhile is lost: look at what the notifications are about.
//!         ListenItem::Reconnected(_) | ListenItem::Lagged(_) => println!("look for jobs"),
//!         _ => {}
//!     }
//! }
//! # Ok(()) }
//! ```
//!
//! # What it promises
//!
//! - **An acknowledgement is the server's.** [`subscribe`](ListenMultiplexer::subscribe) returns when the server listens. All who
//!   wait for one channel share the answer, be it a refusal.
//! - **Gaps are visible.** After an outage each subscriber gets a [`Reconnected`] in its stream, once *all* channels are
//!   acknowledged again. A slow one gets a [`Lagged`](ListenItem::Lagged) with the exact count.
//! - **A dead connection is noticed** within 10 s with the usual settings, 15 s at worst (heartbeat interval plus deadline), be the
//!   peer frozen, cut off, or without the registrations that it had.
//! - **Deafness is noticed.** Where LISTEN is accepted and nothing arrives (a pooler in transaction mode) or refused altogether (a
//!   standby), the [health](ListenMultiplexer::health) says so, and the listener keeps looking.
//! - **Memory is bounded** by the channels held, times the capacity. Nothing grows while a subscriber sleeps or the server is away.
//! - **It stays out of the way**: no transaction is ever left open, no notification left unread, and the log gets one line for a
//!   change of state, not for an attempt.
//!
//! Notifications of one channel arrive in the order in which their transactions committed. Postgres merges equal notifications of
//! one transaction. What arrives can have been sent by anybody who may connect to the database.
//!
//! # Runtimes
//!
//! The listener runs on the tokio runtime that it is started in, with I/O and time enabled, and ends with it. What has a time limit
//! ([`connect`](ListenMultiplexer::connect), [`subscribe`](ListenMultiplexer::subscribe), [`notify`](ListenMultiplexer::notify)) is
//! to be awaited on a tokio runtime, too, and panics elsewhere as tokio's timers do; everything else, receiving above all, runs on
//! any executor.
//!
//! # Behind a pooler
//!
//! LISTEN belongs to a session. Through a pooler in session mode it works; through one in transaction mode it does not, and cannot:
//! give the listener a connection string of its own that leads to the server directly.

mod backend_key;
mod builder;
mod channel_diff;
mod channel_name;
mod channels;
mod connection;
mod dispatch;
mod error;
mod health;
mod item;
mod listen_statements;
mod mux;
mod probe;
mod reconcile;
mod report;
mod session;
mod shared;
mod stats;
mod subscription;
mod worker;

pub use crate::pg::backoff::Backoff;
pub use crate::pg::config::{ConfigError, ListenConfig, Tls};
pub use builder::ListenBuilder;
pub use channel_name::{InvalidChannel, InvalidPayload, MAX_CHANNEL_BYTES, MAX_PAYLOAD_BYTES};
pub use error::{ListenError, ServerError};
pub use health::{Delivery, HealthChanges, ListenHealth, ListenState, ServerInfo};
pub use item::{ListenItem, Notification, Reconnected};
pub use mux::ListenMultiplexer;
pub use stats::ListenStats;
pub use subscription::{ListenSubscription, TryListenError};

//! One LISTEN connection for any number of subscriptions.
//!
//! [`ListenMultiplexer`] holds one raw connection to Postgres and listens on every channel that the process subscribes to. It
//! reconnects automatically, reports to every subscription where notifications may be missing, and is never blocked by a slow
//! subscriber.
//!
//! ```no_run
//! use doorbell::listen::{ListenItem, ListenMultiplexer};
//!
//! # async fn example() -> Result<(), doorbell::listen::ListenError> {
//! let mux = ListenMultiplexer::connect("postgres://app@localhost/app").await?;
//! let mut jobs = mux.subscribe("jobs").await?; // acknowledged: nothing is missed from here on
//! while let Some(item) = jobs.recv().await {
//!     match item {
//!         ListenItem::Notification(job) => println!("job {}", job.payload()),
//!         // Some notifications may be lost: query the database for what they announce.
//!         ListenItem::Reconnected(_) | ListenItem::Lagged(_) => println!("query the jobs table"),
//!         _ => {}
//!     }
//! }
//! # Ok(()) }
//! ```
//!
//! # Guarantees
//!
//! - **Subscribing is acknowledged.** [`subscribe`](ListenMultiplexer::subscribe) returns once the server listens. All callers
//!   that wait for one channel get the same answer, including a refusal.
//! - **Gaps are visible.** After an outage every subscription receives a [`Reconnected`], once the server has acknowledged *all*
//!   channels again. A slow subscription receives a [`Lagged`](ListenItem::Lagged) with the exact number of items it lost.
//! - **Dead connections are detected** within [heartbeat](ListenBuilder::heartbeat) interval plus deadline (10 s by default),
//!   whether the peer is frozen, unreachable, or has lost its registrations.
//! - **Undelivered notifications are detected.** If LISTEN succeeds but nothing arrives (a pooler in transaction mode), or LISTEN
//!   is refused altogether (a standby), the [health](ListenMultiplexer::health) reports it, and the listener keeps trying.
//! - **Memory is bounded** by the number of subscribed channels times the capacity. Nothing grows while a subscriber is idle or
//!   the server is unreachable.
//! - **The load on the server is small.** The listener never leaves a transaction open or a notification unread.
//! - **Logs are short.** The listener logs one line per change of state, not one per attempt.
//!
//! Notifications on one channel arrive in the commit order of their transactions. Postgres merges identical notifications of one
//! transaction. Any client of the database can send any notification, so treat payloads as untrusted input.
//!
//! # Runtimes
//!
//! The listener runs on the tokio runtime on which it is started, and ends when that runtime shuts down. The runtime must have
//! I/O and time enabled. Methods with a time limit ([`connect`](ListenMultiplexer::connect),
//! [`subscribe`](ListenMultiplexer::subscribe), [`notify`](ListenMultiplexer::notify)) must be awaited on a tokio runtime;
//! elsewhere they return [`ListenError::NoRuntime`]. Everything else, including receiving, works on any executor.
//!
//! # Poolers
//!
//! LISTEN belongs to a session. It works through a pooler in session mode, but not through one in transaction mode. In that case,
//! give the listener a connection string that leads directly to the server.

mod backend_key;
mod builder;
pub(crate) mod channel_name;
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
pub(crate) use channel_name::check_channel;
pub use channel_name::{InvalidChannel, InvalidPayload, MAX_CHANNEL_BYTES, MAX_PAYLOAD_BYTES};
pub use error::{ListenError, ServerError};
pub use health::{Delivery, HealthChanges, ListenHealth, ListenState, ServerInfo};
pub use item::{ListenItem, Notification, Reconnected};
pub use mux::ListenMultiplexer;
pub(crate) use session::STARTED_AT;
pub use stats::ListenStats;
pub use subscription::{ListenSubscription, TryListenError};

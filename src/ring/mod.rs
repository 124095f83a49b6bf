//! A bounded broadcast ring for events of any type: every subscriber sees every event, in one order, with a sequence number.
//!
//! - Publishers wait for nobody. A full ring overwrites its oldest event.
//! - A subscriber that falls behind is told exactly what it missed, once, and goes on ([`Lagged`]).
//! - Receiving clones the event, or reads it in place, one by one or in batches; waiting is async on any executor, or blocks.
//!
//! ```
//! use doorbell::ring;
//!
//! let (publisher, mut alerts) = ring::channel(1024);
//! let mut audit = publisher.subscribe();
//!
//! publisher.publish("door 3 opened".to_string());
//! publisher.publish("door 3 closed".to_string());
//!
//! assert_eq!(alerts.try_recv().as_deref(), Ok("door 3 opened"));
//! for event in audit.try_recv_batch(64).unwrap() {
//!     println!("{event}");
//! }
//! ```
//!
//! The contract, clause by clause, is in `docs/contract.md` of the repository; how it is kept, in `docs/engine.md`.

mod batch;
mod bell;
mod builder;
pub(crate) mod coop;
mod core;
mod cursor;
mod dropin;
mod drops;
mod error;
mod future;
mod geometry;
mod iter;
mod overflow;
mod place;
mod presence;
mod publish;
mod publisher;
mod reclaim;
mod recv_ref;
mod registry;
mod release;
mod stamp;
mod stats;
mod stream;
mod subscriber;
mod unique;
mod wait;
mod waiters;

pub use batch::Batch;
pub use builder::{Builder, OnLag, Start, WaitStrategy, Wake, channel, spmc};
pub use error::{BuildError, Lagged, RecvError, RecvTimeoutError, TryRecvError};
pub use future::{Recv, RecvBatch, RecvLossy, RecvRef, RecvSeq};
pub use geometry::MAX_SEQ;
pub use iter::{Iter, TryIter};
pub use publisher::{Publisher, WeakPublisher};
pub use recv_ref::Ref;
pub use stats::{RingStats, SubscriberStats};
pub use stream::SubscriberStream;
pub use subscriber::Subscriber;
pub use unique::UniquePublisher;

pub(crate) use bell::Bell;
pub(crate) use dropin::open;
pub(crate) use presence::{Presence, Ticket};

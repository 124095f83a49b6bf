//! A bounded broadcast ring for events of any type: every subscriber sees every event, in one order, with a sequence number.
//!
//! - Publishers never wait. A full ring overwrites its oldest event.
//! - A subscriber that falls behind gets one error that says exactly what it missed ([`Lagged`]), and continues.
//! - Receives clone the event or read it in place, one at a time or in batches. They wait asynchronously on any executor, or
//!   block.
//!
//! ```
//! use doorbell::ring;
//!
//! let (publisher, mut alerts) = ring::channel(1024);
//! let mut audit = publisher.subscribe();
//!
//! publisher.publish("valve 3 opened".to_string());
//! publisher.publish("valve 3 closed".to_string());
//!
//! assert_eq!(alerts.try_recv().as_deref(), Ok("valve 3 opened"));
//! for event in audit.try_recv_batch(64).unwrap() {
//!     println!("{event}");
//! }
//! ```
//!
//! `docs/contract.md` in the repository is the contract, clause by clause; `docs/engine.md` explains the implementation.

pub(crate) mod announcements;
mod batch;
mod broadcast_ext;
mod builder;
pub(crate) mod coop;
mod cursor;
mod error;
mod future;
mod geometry;
mod iter;
pub(crate) mod overflow;
mod panic_guard;
mod publish;
mod publisher;
mod reclaim;
mod recv_ref;
mod release;
mod shared;
mod slots;
mod stamp;
mod stats;
mod stream;
mod subscriber;
mod subscriber_count;
mod wait;
mod wait_list;
mod wait_queue;
pub(crate) mod wake_watchdog;
mod write;

pub use batch::Batch;
pub use builder::{Builder, OnLag, Start, WaitStrategy, Wake, channel};
pub use error::{BuildError, Lagged, RecvError, RecvTimeoutError, TryRecvError};
pub use future::{Recv, RecvBatch, RecvLossy, RecvRef, RecvSeq};
pub use geometry::MAX_SEQ;
pub use iter::{Iter, TryIter};
pub use publisher::{Publisher, WeakPublisher};
pub use recv_ref::Ref;
pub use stats::{RingStats, SubscriberStats};
pub use stream::SubscriberStream;
pub use subscriber::Subscriber;

pub(crate) use broadcast_ext::open;
pub(crate) use subscriber_count::{AbsenceTicket, SubscriberCount};
pub(crate) use wait_queue::WaitQueue;

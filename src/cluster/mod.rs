//! Cluster events for operations consoles: numbered, in one order, and spliced to a snapshot without gap or repetition.
//!
//! A service that changes its state [emits](ClusterEventPublisher::emit) an event for each change. A console wants the state as
//! it is, and every change from there on:
//!
//! ```
//! use doorbell::cluster::{ClusterEvent, ClusterEventPublisher, Text};
//! use futures::StreamExt;
//! use std::collections::BTreeSet;
//! use std::num::NonZeroUsize;
//! use std::sync::Mutex;
//!
//! # futures::executor::block_on(async {
//! let publisher = ClusterEventPublisher::new(NonZeroUsize::new(1024).unwrap());
//! let peers = Mutex::new(BTreeSet::new());
//! let connect = |peer: &str| {
//!     let mut peers = peers.lock().unwrap();
//!     let peer = Text::from(peer);
//!     peers.insert(peer.clone());
//!     publisher.emit(|meta| ClusterEvent::PeerConnected { meta, peer }); // under the lock
//! };
//! connect("alpha");
//!
//! let mut console = publisher.splice(|seam| {
//!     let peers = peers.lock().unwrap();
//!     seam.mark(); // under the same lock
//!     peers.clone()
//! });
//! connect("beta");
//!
//! assert_eq!(console.snapshot, BTreeSet::from(["alpha".into()]));
//! let Some(Ok(ClusterEvent::PeerConnected { peer, .. })) = console.deltas.next().await else { panic!() };
//! assert_eq!(peer, "beta");
//! # });
//! ```
//!
//! # The seam
//!
//! | the service | the snapshot function | what a console gets |
//! |---|---|---|
//! | changes and emits under one lock | reads and [marks](Seam::mark) under that lock | each change once: in the snapshot or as a delta |
//! | changes first and emits then, under a lock or not | reads, without a mark | nothing is lost; changes around the seam may be in the snapshot *and* come as deltas, which must be idempotent |
//! | emits first and changes then | – | changes can be lost: do not |
//!
//! A mark is exact for what is changed and emitted under the lock that is held when marking. If parts of the state are under
//! different locks, hold all of them, or do not mark.
//!
//! # Lag
//!
//! The publisher keeps the last `capacity` events and never waits. A stream that falls further behind yields one
//! [`ClusterStreamLagged`], which says how many events it lost, and ends; the console takes a new snapshot.
//! [`ClusterEventPublisher::resync`] does that by itself.
//!
//! The contract, clause by clause, is section 10 of `docs/contract.md` of the repository.

mod builder;
mod clock;
mod event;
mod publisher;
mod resync;
mod rfc3339;
mod seam;
mod stream;
mod text;
mod tsc_clock;

pub use builder::ClusterEventPublisherBuilder;
pub use event::{ClusterEvent, ClusterEventMeta};
pub use publisher::ClusterEventPublisher;
pub use resync::Resync;
pub use seam::{Seam, Spliced};
pub use stream::ClusterStreamLagged;
pub use text::Text;

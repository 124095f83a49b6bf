//! Cluster events for operations consoles: numbered, in a single order, and spliced to a snapshot without gaps or duplicates.
//!
//! A service [emits](ClusterEventPublisher::emit) an event for each change of its state. A console needs the current state and
//! every later change:
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
//! | The service | The snapshot function | The console |
//! |---|---|---|
//! | changes its state and emits under one lock | reads and [marks](Seam::mark) under that lock | gets each change exactly once: in the snapshot or as a delta |
//! | changes its state, then emits, with or without a lock | reads without marking | misses nothing; a change near the seam may be in the snapshot *and* in the deltas, so deltas must be idempotent |
//! | emits, then changes its state | – | can miss changes: do not do this |
//!
//! A mark is exact for changes that are made and emitted under the lock held while marking. If several locks protect the state,
//! hold all of them or do not mark.
//!
//! # Lag
//!
//! The publisher retains the last `capacity` events and never waits. A stream that falls further behind yields one
//! [`ClusterStreamLagged`] with the number of events lost, then ends, and the console takes a new snapshot.
//! [`ClusterEventPublisher::resync`] does this automatically.
//!
//! Section 10 of `docs/contract.md` in the repository lists the guarantees.

mod builder;
mod clock;
mod event;
mod publisher;
mod resync;
mod rfc3339;
mod seam;
mod stream;
mod tsc_clock;

pub use builder::ClusterEventPublisherBuilder;
pub use event::{ClusterEvent, ClusterEventMeta, Text};
pub use publisher::ClusterEventPublisher;
pub use resync::Resync;
pub use seam::{Seam, Spliced};
pub use stream::ClusterStreamLagged;

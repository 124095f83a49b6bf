//! Durable event streams: what the bus stands on.
//!
//! A [`Store`] keeps any number of streams, each named by a key and numbered 1, 2, 3 without a gap. [`MemoryStore`] keeps them in this
//! process; `PostgresStore` (feature `postgres`) keeps them for any number of processes; others need three methods.
//!
//! Where no type is said, events are [`FleetEvent`](crate::bus::FleetEvent)s: `MemoryStore::new()`, `PostgresStore::connect(url)`. For
//! those of another type there are `MemoryStore::<Event>::default()` and `PostgresStore::<Event>::builder().connect(url)`.
//!
//! ```
//! use doorbell::bus::FleetEvent;
//! use doorbell::store::{MemoryStore, Store};
//!
//! # futures::executor::block_on(async {
//! let store = MemoryStore::new();
//! store.append(FleetEvent::custom("agent-1", "note", "one")).await?;
//! store.append(FleetEvent::custom("agent-1", "note", "two")).await?;
//! let page = store.replay("agent-1", 1, 100).await?; // what comes after number 1
//! assert_eq!(page.records[0].seq, 2);
//! # Ok::<_, doorbell::store::StoreError>(())
//! # }).unwrap();
//! ```
//!
//! # What is guaranteed
//!
//! | | `MemoryStore` | `PostgresStore` | a store with the three methods only |
//! |---|---|---|---|
//! | numbers are 1, 2, 3, in the order of commit; no reader ever meets a hole | yes | yes, whatever waits, fails or rolls back | its own |
//! | an append that has returned survives | the process's life | what the server's `synchronous_commit` says | its own |
//! | a stamped event is appended at its number or not at all | yes | yes | yes |
//! | a batch is appended as a whole or not at all | yes | yes | no: up to the first error |
//! | several streams are read in one instant | no | yes | no |
//! | an event with business data in one transaction | – | `append_in` | – |
//! | a stream's numbers go on after its events were removed | yes | yes | its own |
//! | a reader below the floor is told: [`Page::trimmed_through`] | yes | yes | its own |
//! | [`changed_since`](Store::changed_since) | yes | yes; on a standby, after a restart and in a restored dump it lists all streams | unknown |
//! | [identities](EventId), never given twice | yes | yes, through failover and restore | unknown |
//! | readers wait for writers | for microseconds | never | its own |
//!
//! Nothing is said about the order between streams: there is none.

mod changes;
mod error;
mod key;
mod memory;
#[cfg(feature = "postgres")]
mod postgres;
mod record;
#[expect(clippy::module_inception, reason = "the trait is what the module is about")]
mod store;

pub use changes::{ChangedStream, Changes, Watermark};
pub use error::StoreError;
pub use key::{InvalidStreamKey, MAX_STREAM_KEY_BYTES, check_stream_key};
pub use memory::{MemoryRetention, MemoryStore};
#[cfg(feature = "postgres")]
pub(crate) use postgres::Connections;
#[cfg(feature = "postgres")]
pub use postgres::{DEFAULT_SCHEMA, InvalidSchemaName, PostgresStore, PostgresStoreBuilder};
pub use record::{EventId, Page, Record, Undecodable};
pub use store::{ReplayRange, Store};

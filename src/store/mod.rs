//! Durable event streams: what the bus stands on.

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
pub use postgres::{DEFAULT_CHANNEL, DEFAULT_SCHEMA, InvalidSchemaName, PostgresStore, PostgresStoreBuilder};
pub use record::{EventId, Page, Record, Undecodable};
pub use store::{ReplayRange, Store};

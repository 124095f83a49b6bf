//! `doorbell::store`, in memory.

#[path = "../../src/store/changes.rs"]
mod changes;
#[path = "../../src/store/error.rs"]
mod error;
#[path = "../../src/store/key.rs"]
mod key;
#[path = "../../src/store/memory/mod.rs"]
mod memory;
#[path = "../../src/store/record.rs"]
mod record;
#[expect(clippy::module_inception, reason = "as at home")]
#[path = "../../src/store/store.rs"]
mod store;

pub(crate) use changes::{ChangedStream, Changes, Watermark};
pub(crate) use error::StoreError;
pub(crate) use key::{InvalidStreamKey, MAX_STREAM_KEY_BYTES, check_stream_key};
pub(crate) use memory::{MemoryRetention, MemoryStore};
pub(crate) use record::{EventId, Page, Record, Undecodable};
pub(crate) use store::Store;

//! `doorbell::store`, without the stores.

#[path = "../../src/store/error.rs"]
mod error;
#[path = "../../src/event/stream_key.rs"]
mod key;
#[path = "../../src/store/record.rs"]
mod record;

pub(crate) use error::StoreError;
pub(crate) use key::{InvalidStreamKey, MAX_STREAM_KEY_BYTES, check_stream_key};
pub(crate) use record::{EventId, Page, Record, Undecodable};

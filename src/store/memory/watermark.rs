//! Watermarks of a memory store, and the IDs of its events.

use std::hash::{BuildHasher, Hasher, RandomState};

use crate::store::{EventId, Watermark};

/// Distinguishes a store from every other store, in this process and in others.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoreId(u64);

/// The content of a watermark: where a list of changes continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WatermarkFields {
    /// Streams with events above this position are listed.
    pub(super) since: u64,
    /// The store's last position when the first page was read.
    pub(super) upto: u64,
    /// The index of the stream at which the next page starts; 0 if there is none.
    pub(super) next_stream: usize,
    /// Whether all streams are being listed.
    pub(super) complete: bool,
}

impl StoreId {
    pub(super) fn random() -> Self {
        // The standard library seeds every `RandomState` differently.
        Self(RandomState::new().build_hasher().finish())
    }

    pub(super) fn event_id(self, position: u64) -> EventId {
        EventId(u128::from(self.0) << 64 | u128::from(position))
    }

    pub(super) fn encode(self, fields: WatermarkFields) -> Watermark {
        let WatermarkFields {
            since,
            upto,
            next_stream,
            complete,
        } = fields;
        let complete = u8::from(complete);
        Watermark::new(format!("{:016x}:{since}:{upto}:{next_stream}:{complete}", self.0))
    }

    /// Decodes a watermark. Returns `None` for one of another store.
    pub(super) fn decode(self, watermark: &Watermark) -> Option<WatermarkFields> {
        let mut parts = watermark.as_str().split(':');
        let store_id = parts.next().and_then(|text| u64::from_str_radix(text, 16).ok())?;
        let mut number = || parts.next().and_then(|text| text.parse::<u64>().ok());
        let fields = WatermarkFields {
            since: number()?,
            upto: number()?,
            next_stream: usize::try_from(number()?).ok()?,
            complete: number()? == 1,
        };
        (store_id == self.0 && parts.next().is_none()).then_some(fields)
    }
}

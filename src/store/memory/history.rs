//! Points in the history of a store in memory, and the identities of its events.

use std::hash::{BuildHasher, Hasher, RandomState};

use crate::store::{EventId, Watermark};

/// What tells one store from every other, in this process and elsewhere.
#[derive(Clone, Copy, Debug)]
pub(super) struct History(u64);

impl History {
    /// The standard library seeds every `RandomState` at random.
    pub(super) fn new() -> Self {
        Self(RandomState::new().build_hasher().finish())
    }

    pub(super) fn event_id(self, version: u64) -> EventId {
        EventId(u128::from(self.0) << 64 | u128::from(version))
    }

    pub(super) fn watermark(self, point: Point) -> Watermark {
        let Point {
            since,
            upto,
            from,
            complete,
        } = point;
        Watermark::new(format!("{:016x}:{since}:{upto}:{from}:{}", self.0, u8::from(complete)))
    }

    /// The point that a watermark of this store names; `None` for another's.
    pub(super) fn point(self, watermark: &Watermark) -> Option<Point> {
        let mut parts = watermark.as_str().split(':');
        let history = parts.next().and_then(|text| u64::from_str_radix(text, 16).ok())?;
        let mut number = || parts.next().and_then(|text| text.parse::<u64>().ok());
        let point = Point {
            since: number()?,
            upto: number()?,
            from: usize::try_from(number()?).ok()?,
            complete: number()? == 1,
        };
        (history == self.0 && parts.next().is_none()).then_some(point)
    }
}

/// Where a list of changes goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Point {
    /// Events above this version are listed.
    pub(super) since: u64,
    /// The store's version when the first page was read.
    pub(super) upto: u64,
    /// The index of the stream with which the next page begins; 0 if there is none.
    pub(super) from: usize,
    /// Whether all streams are being listed.
    pub(super) complete: bool,
}

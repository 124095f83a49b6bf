//! Computes slots and laps from sequences.

use super::stamp::Stamp;
use crate::sync::ANNOUNCE_MAX;

/// The largest sequence that can be published: 2^62 - 1.
pub const MAX_SEQ: u64 = (1 << 62) - 1;

/// The largest capacity a ring can have.
pub(super) const MAX_CAPACITY: usize = 1 << 31;

/// The sizes of one ring.
///
/// The ring has more slots than its capacity, so that publishers can clear expired slots many at a time. The number of slots
/// is the largest 2^k or 3 * 2^k that is at most twice the capacity. It always exceeds the capacity, and the slot of a sequence
/// is computed by a mask, or by a mask and a remainder of three, never by a general division.
#[derive(Debug, Clone, Copy)]
pub(super) struct Geometry {
    capacity: u64,
    slots: u64,
    low_mask: u64,
    shift: u32,
    three: bool,
    announced: u64,
}

impl Geometry {
    pub(super) fn new(capacity: usize) -> Self {
        debug_assert!((1..=MAX_CAPACITY).contains(&capacity));
        let capacity = capacity as u64;
        let power = 1u64 << (2 * capacity).ilog2();
        let three = power / 2 * 3 <= 2 * capacity && power >= 2;
        let (slots, shift) = if three {
            (power / 2 * 3, (power / 2).ilog2())
        } else {
            (power, power.ilog2())
        };
        Self {
            capacity,
            slots,
            low_mask: (1 << shift) - 1,
            shift,
            three,
            announced: capacity.div_ceil(8).min(ANNOUNCE_MAX),
        }
    }

    /// Returns the number of retained sequences.
    #[inline(always)]
    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Returns the number of slots: more than the capacity, at most twice as many.
    #[inline(always)]
    pub(super) fn slots(&self) -> u64 {
        self.slots
    }

    /// Returns how many sequences one announcement covers: enough that the fence costs little per event, and few enough that a
    /// subscriber that rests inside the interval costs publishers little until it is revoked.
    #[inline(always)]
    pub(super) fn announced(&self) -> u64 {
        self.announced
    }

    /// Returns how many sequences the announcement of a batch covers. The announcement lasts while the batch is read, until the
    /// next receive.
    #[inline(always)]
    pub(super) fn announced_by_batch(&self) -> u64 {
        self.capacity.min(ANNOUNCE_MAX)
    }

    /// Returns the index of the slot of `seq`, always below [`Geometry::slots`].
    #[inline(always)]
    pub(super) fn index(&self, seq: u64) -> usize {
        let low = seq & self.low_mask;
        if self.three {
            ((((seq >> self.shift) % 3) << self.shift) | low) as usize
        } else {
            low as usize
        }
    }

    /// Returns how many laps before `seq` its slot was stamped with `stamp`; zero if the stamp is that of `seq`.
    pub(super) fn laps_between(&self, stamp: Stamp, seq: u64) -> u64 {
        stamp.distance_to(seq) / self.slots
    }

    /// Returns the number of the pass over the ring (the lap) that `seq` belongs to.
    pub(super) fn lap(&self, seq: u64) -> u64 {
        seq / self.slots
    }
}

#[cfg(test)]
mod tests {
    use super::Geometry;

    #[test]
    fn slots_exceed_the_capacity_and_never_twice_it() {
        for capacity in (1..5000).chain([1 << 20, (1 << 20) + 1, 1 << 31]) {
            let geometry = Geometry::new(capacity);
            assert!(geometry.slots() > capacity as u64, "capacity {capacity}");
            assert!(geometry.slots() <= 2 * capacity as u64, "capacity {capacity}");
        }
    }

    #[test]
    fn consecutive_sequences_visit_the_slots_in_order() {
        for capacity in 1..200 {
            let geometry = Geometry::new(capacity);
            for start in [1, 7, (1 << 62) - 3 * geometry.slots()] {
                let mut seen = vec![false; geometry.slots() as usize];
                for seq in start..start + geometry.slots() {
                    let next = (geometry.index(seq) + 1) % geometry.slots() as usize;
                    assert_eq!(geometry.index(seq + 1), next);
                    assert!(!std::mem::replace(&mut seen[geometry.index(seq)], true));
                    assert_eq!(geometry.index(seq), geometry.index(seq + geometry.slots()));
                }
            }
        }
    }

    #[test]
    fn an_announcement_covers_at_most_an_eighth_of_the_capacity() {
        assert_eq!(Geometry::new(1).announced(), 1);
        assert_eq!(Geometry::new(8).announced(), 1);
        assert_eq!(Geometry::new(100).announced(), 13);
        assert_eq!(Geometry::new(512).announced(), 64);
        assert_eq!(Geometry::new(4096).announced(), 64);
    }
}

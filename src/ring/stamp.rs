//! The word in every slot that says which sequence it holds.

/// ```text
///  63                                   2   1      0
/// +--------------------------------------+----+------+
/// |               sequence               |  0 | void |
/// +--------------------------------------+----+------+
/// ```
///
/// Stamps are compared by their wrapping distance: before its first use, a slot carries the (void) stamp of the lap before the
/// first sequence, which may lie below zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stamp(u64);

/// A number of sequences, as the difference of two stamps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Distance(u64);

impl Distance {
    pub(super) fn new(sequences: u64) -> Self {
        Self(sequences << SEQ_SHIFT)
    }
}

const SEQ_SHIFT: u32 = 2;
const VOID: u64 = 1;

impl Stamp {
    /// The slot holds the value of `seq`.
    #[inline(always)]
    pub(super) fn value(seq: u64) -> Self {
        Self(seq << SEQ_SHIFT)
    }

    /// The slot belongs to `seq`, which carries no value.
    #[inline(always)]
    pub(super) fn void(seq: u64) -> Self {
        Self((seq << SEQ_SHIFT) | VOID)
    }

    #[inline(always)]
    pub(super) fn from_word(word: u64) -> Self {
        Self(word)
    }

    #[inline(always)]
    pub(super) fn word(self) -> u64 {
        self.0
    }

    /// Returns `true` if this is the stamp of `seq`, whether of a value or a void.
    #[inline(always)]
    pub(super) fn is_of(self, seq: u64) -> bool {
        self.0 & !VOID == seq << SEQ_SHIFT
    }

    /// Returns the sequence of a stamp that some publisher has stored.
    #[inline(always)]
    pub(super) fn seq(self) -> u64 {
        self.0 >> SEQ_SHIFT
    }

    #[inline(always)]
    pub(super) fn is_void(self) -> bool {
        self.0 & VOID != 0
    }

    /// Returns `true` if this is the stamp of `seq` or of a later one.
    #[inline(always)]
    pub(super) fn reaches(self, seq: u64) -> bool {
        self.reaches_stamp(Self::value(seq))
    }

    /// Returns the stamp of the value `by` sequences later.
    #[inline(always)]
    pub(super) fn later(self, by: Distance) -> Self {
        Self(self.0.wrapping_add(by.0))
    }

    /// Returns `true` if this is the stamp `other` of a value, its void, or a later one.
    #[inline(always)]
    pub(super) fn reaches_stamp(self, other: Self) -> bool {
        self.0.wrapping_sub(other.0).cast_signed() >= 0
    }

    /// Returns how far `seq` is ahead of this stamp, which must not be later.
    pub(super) fn distance_to(self, seq: u64) -> u64 {
        (seq << SEQ_SHIFT).wrapping_sub(self.0 & !VOID) >> SEQ_SHIFT
    }
}

#[cfg(test)]
mod tests {
    use super::Stamp;

    #[test]
    fn stamps_order_across_zero() {
        let before_first = Stamp::void(1u64.wrapping_sub(8));
        assert!(!before_first.reaches(1));
        assert!(before_first.is_void());
        assert!(before_first.is_of(1u64.wrapping_sub(8)));
        assert_eq!(before_first.distance_to(1), 8);
        assert!(Stamp::value(9).reaches(1));
    }

    #[test]
    fn stamps_order_near_the_last_sequence() {
        let last = super::super::MAX_SEQ;
        assert!(Stamp::value(last).reaches(last));
        assert!(!Stamp::value(last - 1).reaches(last));
        assert!(Stamp::void(last).reaches(last - 4));
        assert_eq!(Stamp::value(last - 6).distance_to(last), 6);
    }
}

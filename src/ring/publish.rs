//! Publishing claimed sequences: one value, a built value, or a batch.

use core::ops::Range;

use super::panic_guard;
use super::shared::RingShared;
use super::write::PurgeLast;

/// Claimed sequences, of which those that are not placed become void when this is dropped: after a panic, or when an iterator
/// falls short.
struct Claimed<'a, T> {
    core: &'a RingShared<T>,
    rest: Range<u64>,
}

impl<T> Drop for Claimed<'_, T> {
    fn drop(&mut self) {
        let displaced = panic_guard::PanicGuard::new();
        for seq in self.rest.by_ref() {
            displaced.drop_caught(self.core.place_void(seq));
            self.core.tidy_caught(&displaced);
        }
        self.core.wake_fenced();
        displaced.resume();
    }
}

impl<T> RingShared<T> {
    /// Publishes `value` as the claimed `seq`, and rings.
    #[inline(always)]
    pub(super) fn publish_claimed(&self, seq: u64, value: T) -> u64 {
        let displaced = self.place(seq, value);
        self.finish(displaced);
        seq
    }

    /// Claims a sequence, publishes what `build` makes of it, and rings. A panic of `build` makes the sequence void.
    #[inline]
    pub(super) fn publish_built(&self, build: impl FnOnce(u64) -> T) -> u64 {
        let seq = self.claim_checked();
        let _tidy = PurgeLast(self);
        let claimed = Claimed {
            core: self,
            rest: seq..seq + 1,
        };
        let value = build(seq);
        core::mem::forget(claimed);
        let displaced = self.place(seq, value);
        self.wake_built();
        drop(displaced);
        seq
    }

    /// Publishes the items as the claimed sequences, and rings once. What the iterator does not yield becomes void.
    #[inline]
    pub(super) fn publish_all_claimed(&self, seqs: Range<u64>, items: impl Iterator<Item = T>) -> Range<u64> {
        if seqs.is_empty() {
            return seqs;
        }
        let _tidy = PurgeLast(self);
        let displaced = panic_guard::PanicGuard::new();
        let mut claimed = Claimed {
            core: self,
            rest: seqs.clone(),
        };
        self.place_all(&mut claimed.rest, items, &displaced);
        drop(claimed);
        displaced.resume();
        seqs
    }
}

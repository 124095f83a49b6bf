//! Publishes claimed sequences: a value, a built value, or a batch.

use core::ops::Range;

use super::panic_guard;
use super::shared::RingShared;
use super::write::PurgeLast;

/// Claimed sequences. Those that are not written when this is dropped, after a panic or because an iterator yields too few items,
/// become void: they carry no event.
struct Claimed<'a, T> {
    shared: &'a RingShared<T>,
    rest: Range<u64>,
}

impl<T> Drop for Claimed<'_, T> {
    fn drop(&mut self) {
        let panics = panic_guard::PanicGuard::new();
        for seq in self.rest.by_ref() {
            panics.drop_caught(self.shared.write_void(seq));
            self.shared.purge_if_asked(&panics);
        }
        self.shared.wake_fenced();
        panics.resume();
    }
}

impl<T> RingShared<T> {
    /// Publishes `value` as the claimed `seq`, and wakes waiters.
    #[inline(always)]
    pub(super) fn publish_claimed(&self, seq: u64, value: T) -> u64 {
        let displaced = self.write(seq, value);
        self.finish(displaced);
        seq
    }

    /// Claims a sequence, publishes what `build` makes of it, and wakes waiters. If `build` panics, the sequence becomes void.
    #[inline]
    pub(super) fn publish_built(&self, build: impl FnOnce(u64) -> T) -> u64 {
        let seq = self.claim_checked();
        let _purge_last = PurgeLast(self);
        let claimed = Claimed {
            shared: self,
            rest: seq..seq + 1,
        };
        let value = build(seq);
        core::mem::forget(claimed);
        let displaced = self.write(seq, value);
        self.wake_built();
        drop(displaced);
        seq
    }

    /// Publishes the items as the claimed sequences, and wakes waiters once. Sequences that the iterator does not fill become void.
    #[inline]
    pub(super) fn publish_all_claimed(&self, seqs: Range<u64>, items: impl Iterator<Item = T>) -> Range<u64> {
        if seqs.is_empty() {
            return seqs;
        }
        let _purge_last = PurgeLast(self);
        let panics = panic_guard::PanicGuard::new();
        let mut claimed = Claimed {
            shared: self,
            rest: seqs.clone(),
        };
        self.write_all(&mut claimed.rest, items, &panics);
        drop(claimed);
        panics.resume();
        seqs
    }
}

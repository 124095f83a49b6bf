//! The shared state of one ring.

use core::fmt;
use core::mem::MaybeUninit;

use crossbeam_utils::CachePadded;

use super::announcements::{Announcements, Entry};
use super::builder::{Builder, OnLag, WaitStrategy};
use super::geometry::{Geometry, MAX_SEQ};
use super::overflow::{LatestCell, Overflow, Place};
use super::panic_guard;
use super::slots::{Run, Slots};
use super::stamp::Stamp;
use super::stats::RingStats;
use super::subscriber_count::SubscriberCount;
use super::wait_queue::WaitQueue;
use crate::sync::{Arc, AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, UnsafeCell, ord};

/// One slot of the ring: the event of one sequence, and the stamp that says which.
///
/// Only the publisher whose turn it is ([`RingShared::own`]) writes here; it publishes with one store of the stamp.
#[repr(C)]
pub(super) struct Slot<T> {
    pub(super) stamp: AtomicU64,
    pub(super) value: Value<T>,
}

/// Storage for one value. The stamp or the cell records whether it holds one.
pub(super) type Value<T> = UnsafeCell<MaybeUninit<T>>;

/// The part of a slot's state that only the slow paths need, kept apart from the slots.
pub(super) struct SlotMeta {
    /// Which sequences of this slot were diverted (see `reclaim`).
    pub(super) diverted: AtomicU64,
    /// The latest sequence of this slot that was announced when it expired: a subscriber may still be reading it.
    pub(super) suspect: AtomicU64,
    /// The entry of a subscriber that was found to read a suspect, to be looked at first.
    pub(super) suspect_reader: AtomicPtr<Entry>,
    /// The latest sequence of this slot whose overflow cell has been freed.
    pub(super) freed: AtomicU64,
    /// The overflow cell of the latest diverted sequence of this slot.
    pub(super) latest_cell: LatestCell,
}

/// Words that every publication or every receive reads and few change, first; those of the slow paths on the next cache line.
#[repr(C)]
pub(super) struct Limits {
    /// Sequences below this one may use their slots, except for suspects.
    pub(super) writable: AtomicU64,
    /// Sequences below this one must check their slot for a suspect.
    pub(super) careful_until: AtomicU64,
    /// Sequences from this one on are received by looking at their slot and at that of the sequence with which they expire: they
    /// are above the frontier, and the latter was not diverted.
    pub(super) direct_from: AtomicU64,
    /// No receive may begin to read below this sequence.
    pub(super) frontier: AtomicU64,
    /// Sequences from this one on have not been diverted.
    pub(super) diverted_below: AtomicU64,
    /// Whether every publisher is gone.
    pub(super) closed: AtomicBool,
    pub(super) rare: CachePadded<RareLimits>,
}

/// Words of the slow paths.
pub(super) struct RareLimits {
    /// Announcements are revoked below this sequence: what is read there is only what a subscriber says that it reads.
    pub(super) revoked_below: AtomicU64,
    /// Up to which sequence the revocations so far have used up what may be spent on them.
    pub(super) revocations_until: AtomicU64,
    /// The frontier of the last purge of overflow cells.
    pub(super) purged: AtomicU64,
}

pub(super) struct RingShared<T> {
    pub(super) geometry: Geometry,
    pub(super) on_lag: OnLag,
    pub(super) wait: WaitStrategy,
    /// Publishers always fence before they look for waiters; otherwise only if foreign code ran after the claim.
    pub(super) always_fence: bool,
    first_seq: u64,
    /// Receives rely on asymmetric barriers; otherwise each fences.
    pub(super) asymmetric: bool,
    slots: Slots<T>,
    slot_metas: Box<[SlotMeta]>,
    pub(super) limits: CachePadded<Limits>,
    pub(super) overflow: Overflow<T>,
    pub(super) announcements: Announcements,
    pub(super) wait_queue: Arc<WaitQueue>,
    publishers: AtomicUsize,
    pub(super) counts: Arc<SubscriberCount>,
    void: AtomicU64,
    /// The next sequence to be claimed.
    pub(super) tail: CachePadded<AtomicU64>,
}

// SAFETY: a value is written by one publisher, read by many subscribers at once and dropped by whichever thread displaces it:
// that needs `T: Send + Sync` and nothing more. All other fields synchronise themselves.
unsafe impl<T: Send + Sync> Send for RingShared<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for RingShared<T> {}

impl<T> RingShared<T> {
    /// Creates the state for a checked `builder`, with one publisher and no subscriber.
    pub(super) fn new(builder: &Builder) -> Self {
        let geometry = Geometry::new(builder.capacity);
        let first_seq = builder.first_seq;
        let slots = geometry.slots();
        let first_index = geometry.index(first_seq) as u64;
        // Consecutive sequences have consecutive slots, which determines the first sequence of every slot.
        let slot = |index: u64| {
            let first_here = first_seq + (index + slots - first_index) % slots;
            Slot {
                stamp: AtomicU64::new(Stamp::void(first_here.wrapping_sub(slots)).word()),
                value: UnsafeCell::new(MaybeUninit::uninit()),
            }
        };
        Self {
            geometry,
            on_lag: builder.on_lag.unwrap_or(OnLag::Headroom(geometry.capacity() / 8)),
            wait: builder.wait,
            always_fence: !builder.wake_watchdog,
            first_seq,
            asymmetric: builder.asymmetric,
            slots: Slots::new(slots as usize, slot),
            slot_metas: (0..slots)
                .map(|_| SlotMeta {
                    diverted: AtomicU64::new(0),
                    suspect: AtomicU64::new(0),
                    suspect_reader: AtomicPtr::new(core::ptr::null_mut()),
                    freed: AtomicU64::new(0),
                    latest_cell: LatestCell::new(),
                })
                .collect(),
            limits: CachePadded::new(Limits {
                frontier: AtomicU64::new(first_seq),
                writable: AtomicU64::new((first_seq + slots).min(MAX_SEQ + 1)),
                careful_until: AtomicU64::new(0),
                direct_from: AtomicU64::new(0),
                diverted_below: AtomicU64::new(0),
                closed: AtomicBool::new(false),
                rare: CachePadded::new(RareLimits {
                    revoked_below: AtomicU64::new(0),
                    revocations_until: AtomicU64::new(0),
                    purged: AtomicU64::new(first_seq),
                }),
            }),
            overflow: Overflow::new(),
            announcements: Announcements::new(geometry.announced(), geometry.announced_by_batch()),
            wait_queue: Arc::new(WaitQueue::new(builder.wake, builder.wake_watchdog)),
            publishers: AtomicUsize::new(1),
            counts: Arc::new(SubscriberCount::new(first_seq)),
            void: AtomicU64::new(0),
            tail: CachePadded::new(AtomicU64::new(first_seq)),
        }
    }

    #[inline(always)]
    pub(super) fn slot(&self, seq: u64) -> &Slot<T> {
        let index = self.geometry.index(seq);
        // SAFETY: `Geometry::index` is below the number of slots, for every sequence.
        unsafe { self.slots.get_unchecked(index) }
    }

    /// Returns the slots of `seq` and the sequences after it: `most`, or as many as there are up to the end.
    #[inline(always)]
    pub(super) fn slots_from(&self, seq: u64, most: usize) -> Run<'_, T> {
        self.slots.run(self.geometry.index(seq), most)
    }

    pub(super) fn slot_meta(&self, seq: u64) -> &SlotMeta {
        &self.slot_metas[self.geometry.index(seq)]
    }

    /// Returns where to find the overflow cell of `seq`.
    pub(super) fn place(&self, seq: u64) -> Place<'_> {
        Place {
            seq,
            lap: self.geometry.lap(seq),
            latest: &self.slot_meta(seq).latest_cell,
        }
    }

    pub(super) fn first_seq(&self) -> u64 {
        self.first_seq
    }

    /// Returns the next sequence to be claimed. Claims beyond the last sequence have panicked and do not count.
    #[inline(always)]
    pub(super) fn tail(&self) -> u64 {
        // Relaxed, pairs with `claim` and `claim_many` through a stamp: a statistic; a caller that must not find it
        // behind an event has acquired that event's stamp.
        self.tail.load(ord!("tail.read", Relaxed)).min(MAX_SEQ + 1)
    }

    /// Returns the oldest sequence that is retained when everything claimed is published.
    pub(super) fn oldest(&self) -> u64 {
        self.tail().saturating_sub(self.geometry.capacity()).max(self.first_seq)
    }

    pub(super) fn count_void(&self, voids: u64) {
        // Relaxed, pairs with `void.read`: a statistic.
        self.void.fetch_add(voids, ord!("void.count", Relaxed));
    }

    pub(super) fn publisher_added(&self) {
        // Relaxed, pairs with `publishers.leave`: the caller holds a publisher, so the count cannot reach zero
        // meanwhile.
        self.publishers.fetch_add(1, ord!("publishers.add", Relaxed));
    }

    /// Adds a publisher unless the last one is gone.
    pub(super) fn publisher_revived(&self) -> bool {
        // Relaxed, pairs with `publishers.revive`: the count alone decides; no other memory is read because of it.
        let mut count = self.publishers.load(ord!("publishers.peek", Relaxed));
        while count != 0 {
            match self.publishers.compare_exchange_weak(
                count,
                count + 1,
                // Relaxed, pairs with `publishers.leave`: the count alone decides; no other memory is read because of
                // it.
                ord!("publishers.revive", Relaxed),
                // Relaxed, pairs with `publishers.revive`: only compared again.
                ord!("publishers.revive_failed", Relaxed),
            ) {
                Ok(_) => return true,
                Err(current) => count = current,
            }
        }
        false
    }

    /// Removes a publisher; the last one closes the channel and wakes every waiter.
    pub(super) fn publisher_gone(&self) {
        // AcqRel, pairs with itself, in other publishers: the last publisher to leave has acquired everything that the
        // others published, and `close` passes it on.
        if self.publishers.fetch_sub(1, ord!("publishers.leave", AcqRel)) == 1 {
            // Release, pairs with `closed.see`: a thread that sees the channel closed sees everything published.
            self.limits.closed.store(true, ord!("close", Release));
            self.wait_queue.close();
        }
    }

    pub(super) fn publisher_count(&self) -> usize {
        // Relaxed, pairs with `publishers.add`: a statistic.
        self.publishers.load(ord!("publishers.read", Relaxed))
    }

    pub(super) fn is_closed(&self) -> bool {
        // Acquire, pairs with `close`: everything published before the close is visible.
        self.limits.closed.load(ord!("closed.see", Acquire))
    }

    pub(super) fn subscriber_count(&self) -> usize {
        self.counts.subscribers()
    }

    pub(super) fn stats(&self) -> RingStats {
        let next_seq = self.tail();
        // Relaxed, pairs with `void.count`: a statistic.
        let void = self.void.load(ord!("void.read", Relaxed));
        let mut slowest_position = None;
        self.announcements.positions(|position| {
            slowest_position = Some(slowest_position.map_or(position, |slowest: u64| slowest.min(position)));
        });
        RingStats {
            capacity: self.geometry.capacity() as usize,
            first_seq: self.first_seq,
            next_seq,
            published: (next_seq - self.first_seq).saturating_sub(void),
            void,
            subscribers: self.subscriber_count(),
            publishers: self.publisher_count(),
            slowest_position,
        }
    }
}

impl<T> Drop for RingShared<T> {
    fn drop(&mut self) {
        if !core::mem::needs_drop::<T>() {
            return;
        }
        panic_guard::each(self.slots.run(0, usize::MAX), |slot| {
            // Relaxed, pairs with `publish.stamp` by the reference count: the last decrement of the reference count has
            // ordered everything before this drop.
            if !Stamp::from_word(slot.stamp.load(ord!("ring.drop", Relaxed))).is_void() {
                slot.value.with_mut(|value| {
                    // SAFETY: the pointer is to a slot of this ring, and no other thread is left.
                    let value = unsafe { &mut *value };
                    // SAFETY: a stamp that is not void says that the slot holds a value; it is dropped once, here.
                    unsafe { value.assume_init_drop() };
                });
            }
        });
    }
}

impl<T> fmt::Debug for RingShared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingShared")
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

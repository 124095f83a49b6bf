//! The array of slots, laid out so that an event and its stamp share one cache line if they fit.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::ptr::NonNull;

use super::shared::Slot;

const CACHE_LINE: usize = 64;

/// The slots of a ring, `Slots::STRIDE` bytes apart.
pub(super) struct Slots<T> {
    first: NonNull<Slot<T>>,
    count: usize,
    owned: PhantomData<Slot<T>>,
}

// SAFETY: the array owns its slots and gives out shared references to them, as a boxed slice does.
unsafe impl<T> Send for Slots<T> where Slot<T>: Send {}
// SAFETY: as above.
unsafe impl<T> Sync for Slots<T> where Slot<T>: Sync {}

impl<T> Slots<T> {
    /// The distance between slots: the size of one, rounded up to a power of two if it then fits a cache line. Such slots never lie
    /// across two lines, because the array begins at a line.
    pub(super) const STRIDE: usize = {
        let size = size_of::<Slot<T>>();
        let rounded = size.next_power_of_two();
        if rounded <= CACHE_LINE { rounded } else { size }
    };

    /// # Panics
    ///
    /// Panics if the array would not fit the address space, which [`Builder`](super::Builder) excludes.
    fn layout(count: usize) -> Layout {
        let align = align_of::<Slot<T>>().max(CACHE_LINE);
        let size = Self::STRIDE.checked_mul(count).expect("the builder checks the size");
        Layout::from_size_align(size, align).expect("the builder checks the size")
    }

    /// Creates `count` slots, at least one; `make` gets their indexes.
    pub(super) fn new(count: usize, mut make: impl FnMut(u64) -> Slot<T>) -> Self {
        assert_ne!(count, 0, "a ring has slots");
        let layout = Self::layout(count);
        // SAFETY: a slot has at least a stamp, so the size is not zero.
        let memory = unsafe { alloc(layout) };
        let Some(first) = NonNull::new(memory.cast::<Slot<T>>()) else {
            handle_alloc_error(layout)
        };
        for index in 0..count {
            // SAFETY: the slot lies within the allocation and is aligned: the stride is a multiple of the alignment.
            let slot = unsafe { first.byte_add(index * Self::STRIDE) };
            // SAFETY: as above; nothing lives there yet.
            unsafe { slot.write(make(index as u64)) };
        }
        Self {
            first,
            count,
            owned: PhantomData,
        }
    }

    /// Returns the slot of this index.
    ///
    /// # Safety
    ///
    /// `index` is below the number of slots.
    #[inline(always)]
    pub(super) unsafe fn get_unchecked(&self, index: usize) -> &Slot<T> {
        debug_assert!(index < self.count);
        // SAFETY: the caller keeps `index` within the allocation, and every slot was written in `new`.
        let slot = unsafe { self.first.byte_add(index * Self::STRIDE) };
        // SAFETY: as above; slots are only ever shared.
        unsafe { slot.as_ref() }
    }

    /// Returns the slots from `index` on: `most`, or as many as there are.
    #[inline(always)]
    pub(super) fn run(&self, index: usize, most: usize) -> Run<'_, T> {
        let end = index + most.min(self.count - index);
        Run {
            next: self.first.as_ptr().wrapping_byte_add(index * Self::STRIDE),
            end: self.first.as_ptr().wrapping_byte_add(end * Self::STRIDE),
            slots: PhantomData,
        }
    }
}

impl<T> Drop for Slots<T> {
    fn drop(&mut self) {
        for index in 0..self.count {
            // SAFETY: every slot was written in `new` and lies within the allocation.
            let slot = unsafe { self.first.byte_add(index * Self::STRIDE) };
            // SAFETY: dropped once, here.
            unsafe { slot.drop_in_place() };
        }
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.first.as_ptr().cast(), Self::layout(self.count)) };
    }
}

/// Consecutive slots.
pub(super) struct Run<'a, T> {
    next: *const Slot<T>,
    end: *const Slot<T>,
    slots: PhantomData<&'a Slot<T>>,
}

impl<T> Run<'_, T> {
    /// A run without slots.
    pub(super) const EMPTY: Self = Self {
        next: std::ptr::null(),
        end: std::ptr::null(),
        slots: PhantomData,
    };

    pub(super) fn as_ptr(&self) -> *const Slot<T> {
        self.next
    }

    /// Separates the run from the borrow of the array.
    ///
    /// # Safety
    ///
    /// The array lives for `'b`.
    pub(super) unsafe fn extend<'b>(self) -> Run<'b, T> {
        Run {
            next: self.next,
            end: self.end,
            slots: PhantomData,
        }
    }

    /// Returns the first slots of the run, at most `most`.
    pub(super) fn limited(self, most: usize) -> Self {
        Self {
            end: self.next.wrapping_byte_add(self.len().min(most) * Slots::<T>::STRIDE),
            ..self
        }
    }
}

impl<T> Clone for Run<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Run<'_, T> {}

impl<'a, T> Iterator for Run<'a, T> {
    type Item = &'a Slot<T>;

    #[inline(always)]
    fn next(&mut self) -> Option<&'a Slot<T>> {
        if self.next == self.end {
            return None;
        }
        let slot = self.next;
        self.next = slot.wrapping_byte_add(Slots::<T>::STRIDE);
        // SAFETY: there are slots from `next` to `end`, and the array outlives `'a`.
        Some(unsafe { &*slot })
    }

    #[inline(always)]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = (self.end.addr() - self.next.addr()) / Slots::<T>::STRIDE;
        (left, Some(left))
    }
}

impl<T> ExactSizeIterator for Run<'_, T> {}

#[cfg(test)]
mod tests {
    use super::Slots;

    #[test]
    fn what_fits_a_cache_line_lies_on_one() {
        assert_eq!(Slots::<()>::STRIDE, 8);
        assert_eq!(Slots::<u8>::STRIDE, 16);
        assert_eq!(Slots::<u64>::STRIDE, 16);
        assert_eq!(Slots::<[u64; 3]>::STRIDE, 32);
        assert_eq!(Slots::<[u64; 4]>::STRIDE, 64);
        assert_eq!(Slots::<[u64; 7]>::STRIDE, 64);
        assert_eq!(Slots::<[u64; 8]>::STRIDE, 72);
        assert_eq!(Slots::<[u8; 4096]>::STRIDE, 4104);
    }
}

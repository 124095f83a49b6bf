//! loom's atomics, plus the reorderings that loom itself omits.
//!
//! loom explores another order of two operations on one atomic when it finds that they conflict, and it looks for a conflict with
//! the *last* access only. A store that follows a load by the same thread therefore never conflicts with what another thread
//! loaded before that load, and the order "store first" is not explored from there. Publishers do exactly that: they load a stamp
//! and then store it. So every atomic here has one *lane* for each thread that loads it, an object without any memory
//! effect; after a load its thread touches the own lane, after a change the lanes of all others. A lane's last access is thus the
//! last load by its thread, whatever other threads have loaded since.
//!
//! No switch is explored between an operation and its touches: a conflict of lanes leads back to the operation itself.

use loom::sync::Condvar;
use loom::sync::atomic as under;
use loom::thread::{self, ThreadId};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The lanes of one atomic. The lock is the standard library's and never held across a touch, so loom knows nothing of it.
#[derive(Debug, Default)]
struct Lanes(Mutex<Vec<(ThreadId, Arc<Condvar>)>>);

impl Lanes {
    fn lock(&self) -> MutexGuard<'_, Vec<(ThreadId, Arc<Condvar>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn loaded(&self) {
        let own = thread::current().id();
        let mut lanes = self.lock();
        let known = lanes.iter().find(|(id, _)| *id == own).map(|(_, lane)| lane.clone());
        let lane = known.unwrap_or_else(|| {
            let lane = Arc::new(Condvar::new());
            lanes.push((own, lane.clone()));
            lane
        });
        drop(lanes);
        touch(&[lane]);
    }

    fn changed(&self) {
        let own = thread::current().id();
        let others: Vec<_> = self
            .lock()
            .iter()
            .filter(|(id, _)| *id != own)
            .map(|(_, lane)| lane.clone())
            .collect();
        touch(&others);
    }
}

fn touch(lanes: &[Arc<Condvar>]) {
    if lanes.is_empty() {
        return;
    }
    loom::stop_exploring();
    for lane in lanes {
        // To loom, an operation that conflicts with every other touch. Nobody ever waits, so nothing else comes of it.
        lane.notify_one();
    }
    loom::explore();
}

/// The operations that loads and changes share among all types.
macro_rules! wrapper {
    ($name:ident $(<$generic:ident>)?, $value:ty) => {
        #[derive(Debug)]
        pub(crate) struct $name $(<$generic>)? {
            inner: under::$name $(<$generic>)?,
            lanes: Lanes,
        }

        impl $(<$generic>)? $name $(<$generic>)? {
            pub(crate) fn new(value: $value) -> Self {
                Self { inner: under::$name::new(value), lanes: Lanes::default() }
            }

            pub(crate) fn load(&self, order: Ordering) -> $value {
                let value = self.inner.load(order);
                self.lanes.loaded();
                value
            }

            pub(crate) fn store(&self, value: $value, order: Ordering) {
                self.inner.store(value, order);
                self.lanes.changed();
            }

            pub(crate) fn swap(&self, value: $value, order: Ordering) -> $value {
                let before = self.inner.swap(value, order);
                self.lanes.changed();
                before
            }

            pub(crate) fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                let result = self.inner.compare_exchange(current, new, success, failure);
                self.lanes.changed();
                result
            }

            pub(crate) fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }
        }
    };
}

macro_rules! read_modify_write {
    ($name:ident, $value:ty: $($operation:ident)+) => {
        impl $name {
            $(pub(crate) fn $operation(&self, value: $value, order: Ordering) -> $value {
                let before = self.inner.$operation(value, order);
                self.lanes.changed();
                before
            })+
        }
    };
}

wrapper!(AtomicBool, bool);
wrapper!(AtomicU8, u8);
wrapper!(AtomicU64, u64);
wrapper!(AtomicUsize, usize);
wrapper!(AtomicPtr<T>, *mut T);

read_modify_write!(AtomicBool, bool: fetch_and fetch_or);
read_modify_write!(AtomicU8, u8: fetch_and fetch_or);
read_modify_write!(AtomicU64, u64: fetch_add fetch_sub fetch_and fetch_or fetch_max fetch_min);
read_modify_write!(AtomicUsize, usize: fetch_add fetch_sub fetch_and fetch_or fetch_max fetch_min);

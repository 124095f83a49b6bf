//! Threads on fixed cores, so that the scheduler does not decide which channel looks better.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use core_affinity::CoreId;
use tokio::runtime::{Builder, Runtime};

/// Pins this thread to the first or the second core that this process may use: to the first if `index` is even. Does nothing
/// where threads cannot be pinned.
pub fn pin(index: usize) {
    static CORES: OnceLock<Vec<CoreId>> = OnceLock::new();
    // Asked once, since a pinned thread sees only its own core.
    let cores = CORES.get_or_init(|| core_affinity::get_core_ids().unwrap_or_default());
    let most = cores.len().min(2);
    if most > 0 {
        core_affinity::set_for_current(cores[index % most]);
    }
}

/// A runtime with this many workers, pinned in turn to the two cores.
pub fn pinned_workers(workers: usize) -> Runtime {
    let started = AtomicUsize::new(0);
    Builder::new_multi_thread()
        .worker_threads(workers)
        .enable_time()
        .on_thread_start(move || pin(started.fetch_add(1, Ordering::Relaxed)))
        .build()
        .expect("a runtime")
}

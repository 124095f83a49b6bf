//! Independent jobs on all cores, their results in the order in which they end.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// Runs `work` for every job and hands each result to `report` on the calling thread as it arrives.
pub fn each<J: Sync, R: Send>(jobs: &[J], work: impl Fn(&J) -> R + Sync, mut report: impl FnMut(&J, R)) {
    let workers = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let next = AtomicUsize::new(0);
    let (sender, results) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..workers.min(jobs.len()) {
            let sender = sender.clone();
            scope.spawn(|| {
                let sender = sender;
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(index) else { break };
                    if sender.send((index, work(job))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        for (index, result) in results {
            report(&jobs[index], result);
        }
    });
}

//! Replaces the watchdog thread: by nothing, or by a list of wait queues whose turns the model takes itself.
//!
//! Without a watchdog, every wake-up must come from publishers and from woken subscribers, which is the stricter test. A model of
//! the watchdog itself calls [`start`] first, and [`turn`] where the thread would take its turn.

use crate::ring::WaitQueue;
use crate::sync::Arc;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The watched wait queues; `None` without a watchdog.
static WATCHED: Mutex<Option<Vec<Arc<WaitQueue>>>> = Mutex::new(None);

fn watched() -> MutexGuard<'static, Option<Vec<Arc<WaitQueue>>>> {
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Watches `wait_queue`. False without a watchdog.
pub(crate) fn watch(wait_queue: &Arc<WaitQueue>) -> bool {
    if watched().is_none() {
        return false;
    }
    // Cloned outside the lock: to loom it is an operation, before which other threads may run.
    let wait_queue = wait_queue.clone();
    watched().as_mut().is_some_and(|wait_queues| {
        wait_queues.push(wait_queue);
        true
    })
}

/// A wait queue was armed. The model takes the turns, so there is no thread to wake.
pub(crate) fn kick() {}

/// From here on there is a watchdog in this execution.
pub(crate) fn start() {
    *watched() = Some(Vec::new());
}

/// Is there a watchdog in this execution?
pub(crate) fn is_there() -> bool {
    watched().is_some()
}

/// One turn of the watchdog; false if there was nothing to do.
pub(crate) fn turn() -> bool {
    let wait_queues = watched().as_mut().map(std::mem::take).unwrap_or_default();
    let busy = wait_queues
        .iter()
        .filter(|wait_queue| wait_queue.watchdog_turn())
        .count()
        != 0;
    if let Some(all) = watched().as_mut() {
        all.extend(wait_queues);
    }
    busy
}

/// Ends the watchdog and drops its references to the wait queues.
pub(crate) fn stop() {
    let wait_queues = watched().take();
    drop(wait_queues);
}

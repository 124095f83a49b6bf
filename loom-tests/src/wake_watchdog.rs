//! In place of the backstop thread: nothing, or a list of bells that a model rings when it likes.
//!
//! Without a ringer every wake-up has to come from publishers and from the woken, which is the stricter world; a model that is
//! about the backstop itself calls [`start`] first and [`turn`] where the thread would take its turn.

use crate::ring::WaitQueue;
use crate::sync::Arc;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The bells under watch; none when there is no ringer.
static WATCHED: Mutex<Option<Vec<Arc<WaitQueue>>>> = Mutex::new(None);

fn watched() -> MutexGuard<'static, Option<Vec<Arc<WaitQueue>>>> {
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has the ringer look after `bell`. False without one.
pub(crate) fn watch(wait_queue: &Arc<WaitQueue>) -> bool {
    if watched().is_none() {
        return false;
    }
    // Cloned outside of the lock: to loom it is an operation, before which other threads run.
    let wait_queue = wait_queue.clone();
    watched().as_mut().is_some_and(|wait_queues| {
        wait_queues.push(wait_queue);
        true
    })
}

/// A bell was armed. The model takes the turns, so there is nobody to wake.
pub(crate) fn kick() {}

/// From here on there is a ringer, in this execution.
pub(crate) fn start() {
    *watched() = Some(Vec::new());
}

/// Is there a ringer in this execution?
pub(crate) fn is_there() -> bool {
    watched().is_some()
}

/// One turn of the ringer; false when there was nothing to do.
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

/// The end of the ringer, and of its hold on the bells.
pub(crate) fn stop() {
    let wait_queues = watched().take();
    drop(wait_queues);
}

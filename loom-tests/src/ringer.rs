//! In place of the backstop thread: nothing, or a list of bells that a model rings when it likes.
//!
//! Without a ringer every wake-up has to come from publishers and from the woken, which is the stricter world; a model that is
//! about the backstop itself calls [`start`] first and [`turn`] where the thread would take its turn.

use crate::ring::Bell;
use crate::sync::Arc;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The bells under watch; none when there is no ringer.
static WATCHED: Mutex<Option<Vec<Arc<Bell>>>> = Mutex::new(None);

fn watched() -> MutexGuard<'static, Option<Vec<Arc<Bell>>>> {
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has the ringer look after `bell`. False without one.
pub(crate) fn watch(bell: &Arc<Bell>) -> bool {
    if watched().is_none() {
        return false;
    }
    // Cloned outside of the lock: to loom it is an operation, before which other threads run.
    let bell = bell.clone();
    watched().as_mut().is_some_and(|bells| {
        bells.push(bell);
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
    let bells = watched().as_mut().map(std::mem::take).unwrap_or_default();
    let busy = bells.iter().filter(|bell| bell.turn_of_ringer()).count() != 0;
    if let Some(all) = watched().as_mut() {
        all.extend(bells);
    }
    busy
}

/// The end of the ringer, and of its hold on the bells.
pub(crate) fn stop() {
    let bells = watched().take();
    drop(bells);
}

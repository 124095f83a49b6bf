//! The tokio runtime that the bus lives on.

use std::future::Future;
use std::sync::OnceLock;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// Where the bus's tasks run, and how they end.
pub(super) struct Runtime {
    handle: OnceLock<Handle>,
    closing: watch::Sender<bool>,
    tasks: Mutex<Vec<AbortHandle>>,
}

impl Runtime {
    pub(super) fn new() -> Self {
        Self { handle: OnceLock::new(), closing: watch::Sender::new(false), tasks: Mutex::default() }
    }

    /// True for the first call from inside a runtime: that is where the bus lives from then on.
    pub(super) fn enter(&self) -> Option<bool> {
        if self.handle.get().is_some() {
            return Some(false);
        }
        let handle = Handle::try_current().ok()?;
        Some(self.handle.set(handle).is_ok())
    }

    pub(super) fn close(&self) {
        self.closing.send_replace(true);
    }

    pub(super) fn is_closed(&self) -> bool {
        *self.closing.borrow()
    }

    /// Completes when the bus is being closed.
    pub(super) async fn closed(&self) {
        let mut closing = self.closing.subscribe();
        let _ = closing.wait_for(|&closing| closing).await; // an error would mean that the sender is gone, which `self` has
    }

    /// Runs a task until it ends or the bus is closed. Drops it if there is no runtime yet, or any more.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let Some(handle) = self.handle.get() else { return };
        let mut closing = self.closing.subscribe();
        let task = handle.spawn(async move {
            tokio::select! {
                biased;
                _ = closing.wait_for(|&closing| closing) => {}
                () = task => {}
            }
        });
        let mut tasks = self.tasks.lock();
        tasks.retain(|task| !task.is_finished());
        tasks.push(task.abort_handle());
    }

    /// How many tasks have not ended.
    pub(super) fn alive(&self) -> usize {
        let mut tasks = self.tasks.lock();
        tasks.retain(|task| !task.is_finished());
        tasks.len()
    }
}

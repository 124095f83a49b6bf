//! The tokio runtime that the bus lives on.

use std::future::Future;
use std::sync::OnceLock;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Where the bus's tasks run, and how they end.
pub(super) struct Runtime {
    handle: OnceLock<Handle>,
    closing: watch::Sender<bool>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Runtime {
    pub(super) fn new() -> Self {
        Self {
            handle: OnceLock::new(),
            closing: watch::Sender::new(false),
            tasks: Mutex::default(),
        }
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

    /// Runs a task until it ends or the bus is closed. Drops it if there is no runtime yet, or any more.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let Some(handle) = self.handle.get() else { return };
        let mut closing = self.closing.subscribe();
        let closed = async move {
            // What this gives is a lock of the channel, and not to be held while the task is dropped.
            drop(closing.wait_for(|&closing| closing).await);
        };
        let task = handle.spawn(async move {
            tokio::select! {
                biased;
                () = closed => {}
                () = task => {}
            }
        });
        let mut tasks = self.tasks.lock();
        tasks.retain(|task| !task.is_finished());
        tasks.push(task);
    }

    /// Runs a future that needs tokio: right here if this is inside a runtime, else on the bus's. None if there is none, or it ends first.
    pub(super) async fn run<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> Option<T> {
        if Handle::try_current().is_ok() {
            return Some(future.await);
        }
        self.handle.get()?.spawn(future).await.ok()
    }

    /// Completes when no task is left, which is soon after [`close`](Self::close).
    pub(super) async fn ended(&self) {
        let tasks = std::mem::take(&mut *self.tasks.lock());
        for task in tasks {
            let _ = task.await; // it was dropped with its runtime, or has panicked: it has ended
        }
    }
}

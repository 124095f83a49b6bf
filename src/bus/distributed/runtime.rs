//! The tokio runtime that the tasks of the bus run on.

use std::future::Future;
use std::sync::OnceLock;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Runs the tasks of the bus, and ends them.
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

    /// Binds the bus to the current runtime. Returns true for the first call from inside a runtime, false for later calls, and `None`
    /// if the bus has no runtime and this is not called from inside one.
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

    /// Runs a task until it ends or the bus is closed. Drops the task if the runtime has shut down. Returns false if the bus has
    /// no runtime.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> bool {
        let Some(handle) = self.handle.get() else { return false };
        let mut closing = self.closing.subscribe();
        let closed = async move {
            // The result holds a read lock of the channel, which must not be held while the task is dropped.
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
        true
    }

    /// Runs a future that needs tokio, in the caller's task if that is inside a runtime, otherwise on the runtime of the bus.
    /// Returns `None` if the bus has no runtime, or it shuts down first.
    pub(super) async fn run<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> Option<T> {
        if Handle::try_current().is_ok() {
            return Some(future.await);
        }
        self.handle.get()?.spawn(future).await.ok()
    }

    /// Completes when all tasks have ended, soon after [`close`](Self::close).
    pub(super) async fn ended(&self) {
        let tasks = std::mem::take(&mut *self.tasks.lock());
        for task in tasks {
            let _ = task.await; // an error means that it panicked or was dropped with its runtime
        }
    }
}

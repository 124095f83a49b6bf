//! The tokio runtime that the tasks of the bus run on.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::bus::BusError;
use crate::event::foreign;

/// Runs the tasks of the bus, and ends them.
pub(super) struct Runtime {
    handle: OnceLock<Handle>,
    closing: watch::Sender<bool>,
    /// Why the bus has shut down by itself.
    failure: OnceLock<BusError>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Runtime {
    pub(super) fn new() -> Self {
        Self {
            handle: OnceLock::new(),
            closing: watch::Sender::new(false),
            failure: OnceLock::new(),
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

    /// Closes the bus, because it cannot work any longer. The first reason counts.
    pub(super) fn fail(&self, reason: BusError) {
        if !self.is_closed() {
            let _ = self.failure.set(reason);
        }
        self.close();
    }

    /// Returns the reason for which the bus has shut down by itself.
    pub(super) fn failure(&self) -> Option<BusError> {
        self.failure.get().cloned()
    }

    pub(super) fn is_closed(&self) -> bool {
        *self.closing.borrow()
    }

    /// Runs a task until it ends or the bus is closed. If it panics, the bus is closed: without one of its tasks it would be deaf, and look
    /// healthy. Drops the task if the runtime has shut down. Returns false if the bus has no runtime.
    pub(super) fn spawn(self: &Arc<Self>, name: &'static str, task: impl Future<Output = ()> + Send + 'static) -> bool {
        let Some(handle) = self.handle.get() else { return false };
        let mut closing = self.closing.subscribe();
        let closed = async move {
            // The result holds a read lock of the channel, which must not be held while the task is dropped.
            drop(closing.wait_for(|&closing| closing).await);
        };
        let this = Arc::clone(self);
        let task = AssertUnwindSafe(async move {
            tokio::select! {
                biased;
                () = closed => {}
                () = task => {}
            }
        });
        let task = handle.spawn(async move {
            if let Err(panic) = task.catch_unwind().await {
                this.fail(BusError::Panicked {
                    task: name,
                    message: foreign::message_of(panic),
                });
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bus::{BusState, DistributedBus, EventBus as _, FleetEvent};
    use crate::store::MemoryStore;

    #[tokio::test]
    async fn a_task_of_the_bus_that_panics_closes_it_with_a_reason() {
        let store = Arc::new(MemoryStore::<FleetEvent>::new());
        let bus = DistributedBus::builder(store).url("postgres://localhost:1/nowhere");
        let bus = bus.start().unwrap();
        let mut subscription = bus.subscribe("agent-1");
        assert!(bus.shared.runtime.spawn("a task", async { panic!("planted") }));
        let closed = std::time::Duration::from_secs(60);
        let end = tokio::time::timeout(closed, subscription.recv()).await.unwrap();
        assert!(end.is_none(), "{end:?}");
        let mut changes = bus.health_changes();
        let health = changes.wait_for(|health| health.state == BusState::Closed);
        let health = tokio::time::timeout(closed, health).await.unwrap().unwrap().clone();
        assert_eq!(
            health.reason.unwrap().to_string(),
            "a task panicked, so the bus has shut down: planted"
        );
        assert!(matches!(bus.start(), Err(BusError::Closed)));
    }
}

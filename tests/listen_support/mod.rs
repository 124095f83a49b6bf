//! What the tests of the listener share.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::time::Duration;

use doorbell::listen::{ListenHealth, ListenItem, ListenMultiplexer, ListenSubscription, Notification, Reconnected};
use tokio::time::timeout;

/// Far above what anything here takes: only a test that fails waits for so long.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Waits for what must happen.
pub(crate) async fn within<T>(what: &str, happens: impl Future<Output = T>) -> T {
    match timeout(LIMIT, happens).await {
        Ok(happened) => happened,
        Err(_) => panic!("{what} did not happen within {LIMIT:?}"),
    }
}

/// The next item, which must come.
pub(crate) async fn next(subscription: &mut ListenSubscription) -> ListenItem {
    let item = within("an item", subscription.recv()).await;
    item.expect("the subscription has ended")
}

/// The next item, which must be a notification.
pub(crate) async fn notification(subscription: &mut ListenSubscription) -> Notification {
    match next(subscription).await {
        ListenItem::Notification(notification) => notification,
        other => panic!("expected a notification, got {other:?}"),
    }
}

/// The next item, which must be a marker.
pub(crate) async fn marker(subscription: &mut ListenSubscription) -> Reconnected {
    match next(subscription).await {
        ListenItem::Reconnected(marker) => marker,
        other => panic!("expected a marker, got {other:?}"),
    }
}

/// Waits until the health is as it must become.
pub(crate) async fn until(mux: &ListenMultiplexer, what: &str, is: impl Fn(&ListenHealth) -> bool) -> ListenHealth {
    let mut changes = mux.health_changes();
    let changed = async {
        loop {
            let health = mux.health();
            if is(&health) {
                return health;
            }
            assert!(changes.changed().await.is_some(), "the listener has ended: {health:?}");
        }
    };
    match timeout(LIMIT, changed).await {
        Ok(health) => health,
        Err(_) => panic!("{what} did not come within {LIMIT:?}: {:?}", mux.health()),
    }
}

/// The process id of the listener's backend, once it is connected.
pub(crate) async fn backend(mux: &ListenMultiplexer) -> u32 {
    let health = until(mux, "a connection", |health| health.server.is_some()).await;
    health.server.unwrap().backend_pid.try_into().unwrap()
}

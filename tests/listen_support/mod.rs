//! Helpers for the tests of the listener.

#![allow(dead_code, reason = "each test binary uses a part")]

use doorbell::listen::{ListenHealth, ListenItem, ListenMultiplexer, ListenSubscription, Notification, Reconnected};
use testkit::within::{LIMIT, within};
use tokio::time::timeout;

/// Returns the next item.
pub(crate) async fn next(subscription: &mut ListenSubscription) -> ListenItem {
    let item = within("an item", subscription.recv()).await;
    item.expect("the subscription has ended")
}

/// Returns the next item, which must be a notification.
pub(crate) async fn notification(subscription: &mut ListenSubscription) -> Notification {
    match next(subscription).await {
        ListenItem::Notification(notification) => notification,
        other => panic!("expected a notification, got {other:?}"),
    }
}

/// Returns the next item, which must be a `Reconnected`.
pub(crate) async fn reconnected(subscription: &mut ListenSubscription) -> Reconnected {
    match next(subscription).await {
        ListenItem::Reconnected(reconnected) => reconnected,
        other => panic!("expected a reconnect, got {other:?}"),
    }
}

/// Waits until the health satisfies the condition.
pub(crate) async fn until(
    mux: &ListenMultiplexer,
    what: &str,
    condition: impl Fn(&ListenHealth) -> bool,
) -> ListenHealth {
    let mut changes = mux.health_changes();
    let changed = async {
        loop {
            let health = mux.health();
            if condition(&health) {
                return health;
            }
            assert!(changes.changed().await.is_some(), "the listener has ended: {health:?}");
        }
    };
    match timeout(LIMIT, changed).await {
        Ok(health) => health,
        Err(_) => panic!("{what} did not happen within {LIMIT:?}: {:?}", mux.health()),
    }
}

/// Waits until the listener is connected, and returns its backend's process id.
pub(crate) async fn backend(mux: &ListenMultiplexer) -> u32 {
    let health = until(mux, "a connection", |health| health.server.is_some()).await;
    health.server.unwrap().backend_pid.try_into().unwrap()
}

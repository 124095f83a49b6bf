//! Receives notifications. Never waits for the store or for a subscriber, so the listening connection is always read.

use std::sync::Arc;

use super::shared::SharedBus;
use crate::bus::StreamEvent;
use crate::bus::hub::NotificationOutcome;
use crate::bus::payload;
use crate::listen::{ListenError, ListenItem, ListenMultiplexer};

pub(super) async fn run<E: StreamEvent>(shared: Arc<SharedBus<E>>, listener: ListenMultiplexer) {
    let mut notifications = match listener.subscribe_lazy(&shared.settings.channel) {
        Ok(notifications) => notifications,
        Err(error) => {
            let error = ListenError::from(error).into();
            shared.health.listener(false, Some(error));
            return;
        }
    };
    let mut changes = listener.health_changes();
    let mut was_listening = false;
    let mut was_server = None;
    let mut disconnects = 0;
    loop {
        let health = changes.latest();
        let is_listening = health.is_listening();
        let server = health
            .server
            .filter(|_| is_listening)
            .and_then(|server| server.started_at);
        let is_another = server != was_server;
        if is_another {
            // Before anything is read because of it.
            shared.store.follow_server(shared.id, server.as_deref());
            was_server = server;
        }
        shared.health.listener(is_listening, health.reason.map(Into::into));
        if is_listening != was_listening || is_another {
            was_listening = is_listening;
            if is_listening {
                shared.store.on_reconnect();
            }
            shared.wakeups.request_history_check();
        }
        // The health is looked at only when it has changed: a flood of notifications must not cost more than it has to.
        loop {
            tokio::select! {
                biased;
                change = changes.changed() => match change {
                    Some(_) => break,
                    None => return ended(&shared, &listener),
                },
                item = notifications.recv() => match item {
                    Some(ListenItem::Notification(notification)) => receive(&shared, notification.payload()),
                    // Notifications may be lost, and the server may be another one.
                    Some(ListenItem::Reconnected(_)) => {
                        shared.wakeups.request_history_check();
                        break;
                    }
                    // Notifications are lost. A `Reconnected` may be among them; a flood alone is no reason to stop the reader.
                    Some(ListenItem::Lagged(_)) => {
                        let lost = listener.stats().disconnects;
                        if std::mem::replace(&mut disconnects, lost) != lost {
                            shared.wakeups.request_history_check();
                        }
                        shared.hub.request_sweep();
                    }
                    None => return ended(&shared, &listener),
                },
            }
        }
    }
}

/// The listener ends with the bus or its runtime, unless it has panicked: then the bus would stay without notifications.
fn ended<E: StreamEvent>(shared: &SharedBus<E>, listener: &ListenMultiplexer) {
    if let Some(reason @ ListenError::Panicked) = listener.health().reason {
        shared.runtime.fail(reason.into());
    }
}

fn receive<E: StreamEvent>(shared: &SharedBus<E>, payload: &str) {
    shared.counters.notifications_received.add(1);
    let (ranges, invalid) = payload::parse(payload);
    for range in ranges {
        if shared.hub.on_notification(range.stream_key, range.seqs) == NotificationOutcome::NotSubscribed {
            shared.counters.notifications_ignored.add(1);
        }
    }
    if invalid > 0 {
        if payload != payload::SWEEP_REQUEST {
            shared.counters.notifications_invalid.add(invalid as u64);
        }
        shared.hub.request_sweep();
    }
}

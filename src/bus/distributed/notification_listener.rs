//! Hears notifications. Never waits for the store or a subscriber, so that the listening connection is always read.

use std::sync::Arc;

use super::shared::SharedBus;
use crate::bus::StreamEvent;
use crate::bus::hub::Announced;
use crate::bus::payload;
use crate::listen::{ListenItem, ListenMultiplexer};

pub(super) async fn listen<E: StreamEvent>(inner: Arc<SharedBus<E>>, listener: ListenMultiplexer) {
    let mut notifications = match listener.subscribe_lazy(&inner.settings.channel) {
        Ok(doorbells) => doorbells,
        Err(error) => {
            inner
                .health
                .listener(false, Some(crate::listen::ListenError::from(error).into()));
            return;
        }
    };
    let mut changes = listener.health_changes();
    let mut was_listening = false;
    loop {
        let health = changes.latest();
        let listening = health.is_listening();
        inner.health.listener(listening, health.reason.map(Into::into));
        if listening != was_listening {
            was_listening = listening;
            if listening {
                inner.store.on_reconnect();
            }
            inner.wakeups.away();
        }
        tokio::select! {
            item = notifications.recv() => match item {
                Some(ListenItem::Notification(notification)) => receive(&inner, notification.payload()),
                Some(_) => {
                    // Reconnected, or too slow: there may have been notifications.
                    inner.wakeups.away();
                }
                None => return,
            },
            change = changes.changed() => if change.is_none() { return },
        }
    }
}

fn receive<E: StreamEvent>(inner: &SharedBus<E>, payload: &str) {
    inner.counters.notifications_received.add(1);
    let (ranges, invalid) = payload::parse(payload);
    for range in ranges {
        if inner.hub.announced(range.stream_key, range.seqs) == Announced::NotSubscribed {
            inner.counters.notifications_ignored.add(1);
        }
    }
    if invalid > 0 {
        if payload != payload::SWEEP_REQUEST {
            inner.counters.notifications_invalid.add(invalid as u64);
        }
        inner.hub.want_sweep();
        inner.wakeups.sweeper.notify_one();
    }
}

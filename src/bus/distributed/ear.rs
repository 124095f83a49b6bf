//! Hears doorbells. Never waits for the store or a subscriber, so that the listening connection is always read.

use std::sync::Arc;

use super::inner::Inner;
use crate::bus::StreamEvent;
use crate::bus::hub::Heard;
use crate::bus::pointer;
use crate::listen::{ListenItem, ListenMultiplexer};

pub(super) async fn listen<E: StreamEvent>(inner: Arc<Inner<E>>, listener: ListenMultiplexer) {
    let mut doorbells = match listener.subscribe_lazy(&inner.settings.channel) {
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
                inner.store.server_is_back();
            }
            inner.nudges.away();
        }
        tokio::select! {
            item = doorbells.recv() => match item {
                Some(ListenItem::Notification(bell)) => hear(&inner, bell.payload()),
                Some(_) => {
                    // Reconnected, or too slow: there may have been doorbells.
                    inner.nudges.away();
                }
                None => return,
            },
            change = changes.changed() => if change.is_none() { return },
        }
    }
}

fn hear<E: StreamEvent>(inner: &Inner<E>, payload: &str) {
    inner.counters.bells_heard.add(1);
    let (pointers, bad) = pointer::parse(payload);
    for pointer in pointers {
        if inner.hub.hear(pointer.stream_key, pointer.seqs) == Heard::NotSubscribed {
            inner.counters.bells_ignored.add(1);
        }
    }
    if bad > 0 {
        if payload != pointer::SWEEP {
            inner.counters.bells_forged.add(bad as u64);
        }
        inner.hub.want_sweep();
        inner.nudges.sweeper.notify_one();
    }
}

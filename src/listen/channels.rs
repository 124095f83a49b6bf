//! The desired state of every channel, shared by the subscriptions and the worker.
//!
//! Subscribing and unsubscribing briefly lock the table, change the desired state, and wake the worker. Only the worker talks to
//! the server: it takes the names that changed, compares the desired state with what the server listens on
//! ([`reconcile`](super::reconcile)), and records what the server acknowledges. As a result, a subscription never claims to
//! listen before the server does. Dropping the future of a pending `subscribe` call drops its subscription, which undoes the
//! change.
//!
//! Nothing is published or dropped under the lock, because both can run wakers, which are foreign code.

use std::collections::hash_map::Entry as MapEntry;
use std::collections::{HashMap, HashSet};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::channel_name::ChannelName;
use super::error::ListenError;
use super::item::{ListenItem, Reconnected};
use crate::ring;

/// The maximum number of channels without subscriptions that wait for their `unlisten_delay`. Beyond it, UNLISTEN is due at once.
const MAX_IDLE: usize = 1024;

/// The server's answer to the LISTEN of a channel.
#[derive(Clone, Debug)]
pub(super) enum Ack {
    /// No answer yet on the current connection.
    Pending,
    /// The server listens.
    Listening,
    /// The server refused, or cannot listen at all. This state lasts until the next attempt. Refusals are numbered, so that a
    /// subscription created after one waits for the next attempt.
    Refused(u64, ListenError),
    /// The listener has shut down.
    Closed,
}

/// The desired state of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Desired {
    /// It has subscriptions.
    Subscribed,
    /// It has none, and UNLISTEN is due at this instant.
    IdleUntil(Instant),
    /// It has been removed.
    Removed,
}

pub(super) type Ring = Arc<ring::Publisher<ListenItem>>;

struct Channel {
    subscriptions: usize,
    /// Present while there are subscriptions.
    ring: Option<Ring>,
    ack: watch::Sender<Ack>,
    /// Whether the server has ever acknowledged it. Before that, its subscriptions cannot miss anything.
    acknowledged: bool,
    /// Whether the connection has been lost since it was acknowledged.
    interrupted: bool,
    /// When the last subscription was dropped, if none is left.
    idle_since: Option<Instant>,
}

#[derive(Default)]
struct ChannelTable {
    by_name: HashMap<ChannelName, Channel>,
    changed: HashSet<ChannelName>,
    idle: usize,
    refusals: u64,
    /// Whether a session takes the changes. Without one, they are not collected, because the next session starts with every
    /// channel.
    in_session: bool,
    closed: bool,
}

pub(super) struct Channels {
    table: Mutex<ChannelTable>,
    capacity: NonZeroUsize,
    unlisten_delay: Duration,
    /// Wakes the worker when something has changed.
    pub(super) changed: Notify,
}

/// The parts of a new subscription.
pub(super) struct Registration {
    pub(super) name: ChannelName,
    pub(super) items: ring::Subscriber<ListenItem>,
    pub(super) ack: watch::Receiver<Ack>,
    /// The number of the latest earlier refusal.
    pub(super) refusals_before: u64,
}

/// The destination of a notification.
pub(super) enum Route {
    Ring(ChannelName, Ring),
    /// The channel has no subscriptions, and its UNLISTEN is not due yet.
    Idle,
    Unknown,
}

impl Channels {
    pub(super) fn new(capacity: NonZeroUsize, unlisten_delay: Duration) -> Self {
        Self {
            table: Mutex::default(),
            capacity,
            unlisten_delay,
            changed: Notify::new(),
        }
    }

    /// Adds a subscription to `name`. After [`close`](Self::close) the subscription has already ended.
    pub(super) fn subscribe(&self, name: ChannelName) -> Registration {
        let mut table = self.table.lock();
        let refusals_before = table.refusals;
        if table.closed {
            drop(table);
            let (_, items) = ring::channel(1);
            let (_, ack) = watch::channel(Ack::Closed);
            return Registration {
                name,
                items,
                ack,
                refusals_before,
            };
        }
        let table = &mut *table;
        let (channel, new) = match table.by_name.entry(name.clone()) {
            MapEntry::Occupied(entry) => (entry.into_mut(), false),
            MapEntry::Vacant(entry) => (entry.insert(Channel::new()), true),
        };
        channel.subscriptions += 1;
        let items = match &channel.ring {
            Some(ring) => ring.subscribe(),
            None => {
                let (publisher, items) = ring::channel(self.capacity.get());
                channel.ring = Some(Arc::new(publisher));
                items
            }
        };
        let ack = channel.ack.subscribe();
        let refused = matches!(*ack.borrow(), Ack::Refused(..));
        let was_idle = channel.idle_since.take().is_some();
        if was_idle {
            table.idle -= 1;
        }
        if table.in_session && (new || refused || was_idle) {
            table.changed.insert(name.clone());
            self.changed.notify_one();
        }
        Registration {
            name,
            items,
            ack,
            refusals_before,
        }
    }

    /// Removes a subscription from `name`.
    pub(super) fn unsubscribe(&self, name: &ChannelName) {
        let mut locked = self.table.lock();
        let table = &mut *locked;
        let full = table.idle >= MAX_IDLE;
        let Some(channel) = table.by_name.get_mut(name) else {
            return; // closed in the meantime
        };
        channel.subscriptions -= 1;
        if channel.subscriptions > 0 {
            return;
        }
        let unused = channel.ring.take();
        if table.in_session {
            // With too many idle channels, backdate this one so that its UNLISTEN is due at once.
            let now = Instant::now();
            channel.idle_since = Some(if full {
                now.checked_sub(self.unlisten_delay).unwrap_or(now)
            } else {
                now
            });
            table.idle += 1;
            table.changed.insert(name.clone());
            self.changed.notify_one();
        } else {
            table.by_name.remove(name);
        }
        drop(locked);
        drop(unused);
    }

    /// Returns the destination of a notification on this channel. The caller publishes into the ring, outside the lock.
    pub(super) fn route(&self, name: &str) -> Route {
        let table = self.table.lock();
        match table.by_name.get_key_value(name) {
            None => Route::Unknown,
            Some((name, channel)) => match &channel.ring {
                None => Route::Idle,
                Some(ring) => Route::Ring(name.clone(), ring.clone()),
            },
        }
    }

    /// Returns the names that have changed since the last call, each with its desired state.
    pub(super) fn take_changes(&self) -> Vec<(ChannelName, Desired)> {
        let mut table = self.table.lock();
        let changed = std::mem::take(&mut table.changed);
        self.desired_in(&table, changed)
    }

    /// Returns the desired state of each of these names.
    pub(super) fn desired(&self, names: Vec<ChannelName>) -> Vec<(ChannelName, Desired)> {
        self.desired_in(&self.table.lock(), names)
    }

    fn desired_in(
        &self,
        table: &ChannelTable,
        names: impl IntoIterator<Item = ChannelName>,
    ) -> Vec<(ChannelName, Desired)> {
        let desired = |name: ChannelName| {
            let desired = table.desired(&name, self.unlisten_delay);
            (name, desired)
        };
        names.into_iter().map(desired).collect()
    }

    /// Starts a session. The server listens on nothing yet, so every subscribed channel has changed.
    pub(super) fn begin_session(&self) {
        let mut table = self.table.lock();
        table.remove_idle();
        table.in_session = true;
        table.changed = table.by_name.keys().cloned().collect();
    }

    /// Removes a channel unless it has subscriptions again. Returns whether it is gone.
    pub(super) fn remove_if_idle(&self, name: &ChannelName) -> bool {
        let mut table = self.table.lock();
        match table.by_name.get(name) {
            Some(channel) if channel.subscriptions > 0 => false,
            Some(_) => {
                table.by_name.remove(name);
                table.idle -= 1;
                true
            }
            None => true,
        }
    }

    /// Records that the server has acknowledged these channels. Those that may have missed notifications get `reconnected` first.
    pub(super) fn acknowledge(&self, names: &[ChannelName], reconnected: Option<Reconnected>) {
        let mut interrupted: Vec<Ring> = Vec::new();
        let mut acks: Vec<watch::Sender<Ack>> = Vec::new();
        let mut table = self.table.lock();
        for name in names {
            let Some(channel) = table.by_name.get_mut(name) else {
                continue;
            };
            channel.acknowledged = true;
            if std::mem::take(&mut channel.interrupted) {
                interrupted.extend(channel.ring.clone());
            }
            acks.push(channel.ack.clone());
        }
        drop(table);
        if let Some(reconnected) = reconnected {
            for ring in interrupted {
                ring.publish(ListenItem::Reconnected(reconnected));
            }
        }
        for ack in acks {
            ack.send_replace(Ack::Listening);
        }
    }

    /// Records that the server refused to listen on this channel. Returns whether its subscriptions received notifications before
    /// the connection was lost, and now do not.
    pub(super) fn refuse(&self, name: &ChannelName, error: &ListenError) -> bool {
        let mut table = self.table.lock();
        table.refusals += 1;
        let number = table.refusals;
        let Some(channel) = table.by_name.get(name) else {
            return false;
        };
        let (ack, interrupted) = (channel.ack.clone(), channel.interrupted);
        drop(table);
        ack.send_replace(Ack::Refused(number, error.clone()));
        interrupted
    }

    /// Records that the server cannot listen on any channel for now.
    pub(super) fn refuse_all(&self, error: &ListenError) {
        let mut table = self.table.lock();
        table.refusals += 1;
        let number = table.refusals;
        let acks: Vec<_> = table.by_name.values().map(|channel| channel.ack.clone()).collect();
        drop(table);
        for ack in acks {
            ack.send_replace(Ack::Refused(number, error.clone()));
        }
    }

    /// Ends the session: no channel is acknowledged any more, and those that were may miss notifications.
    pub(super) fn end_session(&self) {
        let mut table = self.table.lock();
        table.remove_idle();
        table.in_session = false;
        table.changed = HashSet::new();
        let mut acks = Vec::with_capacity(table.by_name.len());
        for channel in table.by_name.values_mut() {
            channel.interrupted |= channel.acknowledged;
            acks.push(channel.ack.clone());
        }
        drop(table);
        for ack in acks {
            ack.send_replace(Ack::Pending);
        }
    }

    /// Ends every subscription, and every later one as soon as it is created.
    pub(super) fn close(&self) {
        let mut table = self.table.lock();
        let ended = std::mem::take(&mut *table);
        table.closed = true;
        drop(table);
        for channel in ended.by_name.values() {
            channel.ack.send_replace(Ack::Closed);
        }
        drop(ended);
    }

    /// Returns the number of subscribed channels, and of their subscriptions.
    pub(super) fn count(&self) -> (usize, usize) {
        let table = self.table.lock();
        let subscribed = table.by_name.values().filter(|channel| channel.subscriptions > 0);
        subscribed.fold((0, 0), |(channels, subscriptions), channel| {
            (channels + 1, subscriptions + channel.subscriptions)
        })
    }
}

#[cfg(test)]
impl Channels {
    /// Returns the number of channels in the table, including idle ones.
    pub(super) fn len(&self) -> usize {
        self.table.lock().by_name.len()
    }
}

impl ChannelTable {
    fn remove_idle(&mut self) {
        self.by_name.retain(|_, channel| channel.subscriptions > 0);
        self.idle = 0;
    }

    fn desired(&self, name: &ChannelName, unlisten_delay: Duration) -> Desired {
        match self.by_name.get(name) {
            None => Desired::Removed,
            Some(channel) => match channel.idle_since {
                None => Desired::Subscribed,
                // A delay beyond the range of `Instant` never elapses.
                Some(since) => since
                    .checked_add(unlisten_delay)
                    .map_or(Desired::Subscribed, Desired::IdleUntil),
            },
        }
    }
}

impl Channel {
    fn new() -> Self {
        Self {
            subscriptions: 0,
            ring: None,
            ack: watch::Sender::new(Ack::Pending),
            acknowledged: false,
            interrupted: false,
            idle_since: None,
        }
    }
}

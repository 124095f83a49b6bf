//! Who wants to listen on which channel, shared by subscriptions and the owner of the connection.
//!
//! Subscribers change what is *wanted* under one short lock, and wake the owner. The owner alone talks to the server; it takes
//! the names that changed, compares what is wanted with what the server has ([`diff`](super::channel_diff)), and writes back what the
//! server has acknowledged. So nobody can see a registration that the server does not know of, and a dropped future rolls back
//! by dropping its handle.
//!
//! Nothing is published or dropped under the lock, since that may run code of others (wakers).

use std::collections::hash_map::Entry as MapEntry;
use std::collections::{HashMap, HashSet};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::channel_diff::Wanted;
use super::channel_name::ChannelName;
use super::error::ListenError;
use super::item::{ListenItem, Reconnected};
use crate::ring;

/// How many channels that nobody holds any more may linger at once; more are given up at once.
const MAX_DELAYED: usize = 1024;

/// What the server has said about a channel.
#[derive(Clone, Debug)]
pub(super) enum Ack {
    /// Nothing yet on the present connection.
    Pending,
    /// It listens.
    Listening,
    /// It refused, or there is no point in asking; until the next attempt. Refusals are numbered, so that who comes after one
    /// waits for the next attempt.
    Refused(u64, ListenError),
    /// There will be no more attempts.
    Closed,
}

pub(super) type Ring = Arc<ring::Publisher<ListenItem>>;

struct Channel {
    holders: usize,
    /// While there are holders.
    ring: Option<Ring>,
    ack: watch::Sender<Ack>,
    /// Whether the server has ever acknowledged it, so that its holders have something to miss.
    established: bool,
    /// Whether an outage has come since.
    missed: bool,
    /// When the last holder went, if none is left.
    idle_since: Option<Instant>,
}

#[derive(Default)]
struct ChannelTable {
    by_name: HashMap<ChannelName, Channel>,
    changed: HashSet<ChannelName>,
    lingering: usize,
    refusals: u64,
    /// Whether there is a session to follow the changes. While there is none they are not collected: the next one starts with
    /// everything that is held.
    followed: bool,
    closed: bool,
}

pub(super) struct Channels {
    channels: Mutex<ChannelTable>,
    capacity: NonZeroUsize,
    unlisten_delay: Duration,
    /// Wakes the owner when something has changed.
    pub(super) changed: Notify,
}

/// What a registration gives its holder.
pub(super) struct Registered {
    pub(super) name: ChannelName,
    pub(super) items: ring::Subscriber<ListenItem>,
    pub(super) ack: watch::Receiver<Ack>,
    /// The number of the latest refusal that came before.
    pub(super) refusals_before: u64,
}

/// Where a notification goes.
pub(super) enum Addressee {
    Ring(ChannelName, Ring),
    /// The channel lingers.
    Nobody,
    Unknown,
}

impl Channels {
    pub(super) fn new(capacity: NonZeroUsize, unlisten_delay: Duration) -> Self {
        Self {
            channels: Mutex::default(),
            capacity,
            unlisten_delay,
            changed: Notify::new(),
        }
    }

    /// Counts one more holder of `name`. On a closed registry the result has ended already.
    pub(super) fn hold(&self, name: ChannelName) -> Registered {
        let mut channels = self.channels.lock();
        let refusals_before = channels.refusals;
        if channels.closed {
            drop(channels);
            let (_, items) = ring::channel(1);
            let (_, ack) = watch::channel(Ack::Closed);
            return Registered {
                name,
                items,
                ack,
                refusals_before,
            };
        }
        let channels = &mut *channels;
        let (channel, new) = match channels.by_name.entry(name.clone()) {
            MapEntry::Occupied(entry) => (entry.into_mut(), false),
            MapEntry::Vacant(entry) => (entry.insert(Channel::new()), true),
        };
        channel.holders += 1;
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
        let returned = channel.idle_since.take().is_some();
        if returned {
            channels.lingering -= 1;
        }
        if channels.followed && (new || refused || returned) {
            channels.changed.insert(name.clone());
            self.changed.notify_one();
        }
        Registered {
            name,
            items,
            ack,
            refusals_before,
        }
    }

    /// Counts one holder less.
    pub(super) fn release(&self, name: &ChannelName) {
        let mut locked = self.channels.lock();
        let channels = &mut *locked;
        let full = channels.lingering >= MAX_DELAYED;
        let Some(channel) = channels.by_name.get_mut(name) else {
            return; // closed in the meantime
        };
        channel.holders -= 1;
        if channel.holders > 0 {
            return;
        }
        let unused = channel.ring.take();
        if channels.followed {
            // As if idle for long already, when too many linger.
            let now = Instant::now();
            channel.idle_since = Some(if full {
                now.checked_sub(self.unlisten_delay).unwrap_or(now)
            } else {
                now
            });
            channels.lingering += 1;
            channels.changed.insert(name.clone());
            self.changed.notify_one();
        } else {
            channels.by_name.remove(name);
        }
        drop(locked);
        drop(unused);
    }

    /// Where a notification of this channel goes: the ring is for publishing into outside the lock, the name for sharing.
    pub(super) fn addressee(&self, name: &str) -> Addressee {
        let channels = self.channels.lock();
        match channels.by_name.get_key_value(name) {
            None => Addressee::Unknown,
            Some((name, channel)) => match &channel.ring {
                None => Addressee::Nobody,
                Some(ring) => Addressee::Ring(name.clone(), ring.clone()),
            },
        }
    }

    /// The names that have changed since the last call, with what is wanted of each.
    pub(super) fn take_changes(&self) -> Vec<(ChannelName, Wanted)> {
        let mut channels = self.channels.lock();
        let changed = std::mem::take(&mut channels.changed);
        let wanted = |name: ChannelName| {
            let wanted = channels.wanted(&name, self.unlisten_delay);
            (name, wanted)
        };
        changed.into_iter().map(wanted).collect()
    }

    /// What is wanted of each of these names.
    pub(super) fn wanted(&self, names: Vec<ChannelName>) -> Vec<(ChannelName, Wanted)> {
        let channels = self.channels.lock();
        let wanted = |name: ChannelName| {
            let wanted = channels.wanted(&name, self.unlisten_delay);
            (name, wanted)
        };
        names.into_iter().map(wanted).collect()
    }

    /// A session begins, and the server has nothing yet: everything that is held has changed.
    pub(super) fn start_over(&self) {
        let mut channels = self.channels.lock();
        channels.forget_the_idle();
        channels.followed = true;
        channels.changed = channels.by_name.keys().cloned().collect();
    }

    /// Forgets a channel that nobody holds; false if somebody does again.
    pub(super) fn forget(&self, name: &ChannelName) -> bool {
        let mut channels = self.channels.lock();
        match channels.by_name.get(name) {
            Some(channel) if channel.holders > 0 => false,
            Some(_) => {
                channels.by_name.remove(name);
                channels.lingering -= 1;
                true
            }
            None => true,
        }
    }

    /// The server has acknowledged these channels. Those whose holders may have missed something get the `marker`.
    pub(super) fn acknowledge(&self, names: &[ChannelName], marker: Option<Reconnected>) {
        let mut missed: Vec<Ring> = Vec::new();
        let mut acks: Vec<watch::Sender<Ack>> = Vec::new();
        let mut channels = self.channels.lock();
        for name in names {
            let Some(channel) = channels.by_name.get_mut(name) else {
                continue;
            };
            channel.established = true;
            if std::mem::take(&mut channel.missed) {
                missed.extend(channel.ring.clone());
            }
            acks.push(channel.ack.clone());
        }
        drop(channels);
        if let Some(marker) = marker {
            for ring in missed {
                ring.publish(ListenItem::Reconnected(marker));
            }
        }
        for ack in acks {
            ack.send_replace(Ack::Listening);
        }
    }

    /// The server refused to listen on this channel: whoever waits for it learns of it. Says whether anybody holds it who was
    /// listening before.
    pub(super) fn refuse(&self, name: &ChannelName, error: &ListenError) -> bool {
        let mut channels = self.channels.lock();
        channels.refusals += 1;
        let number = channels.refusals;
        let Some(channel) = channels.by_name.get(name) else {
            return false;
        };
        let (ack, missed) = (channel.ack.clone(), channel.missed);
        drop(channels);
        ack.send_replace(Ack::Refused(number, error.clone()));
        missed
    }

    /// There is no listening on any channel for now.
    pub(super) fn refuse_all(&self, error: &ListenError) {
        let mut channels = self.channels.lock();
        channels.refusals += 1;
        let number = channels.refusals;
        let acks: Vec<_> = channels.by_name.values().map(|channel| channel.ack.clone()).collect();
        drop(channels);
        for ack in acks {
            ack.send_replace(Ack::Refused(number, error.clone()));
        }
    }

    /// The connection is lost: nothing is acknowledged any more, and who was listening may miss something.
    pub(super) fn disconnected(&self) {
        let mut channels = self.channels.lock();
        channels.forget_the_idle();
        channels.followed = false;
        channels.changed = HashSet::new();
        let mut acks = Vec::with_capacity(channels.by_name.len());
        for channel in channels.by_name.values_mut() {
            channel.missed |= channel.established;
            acks.push(channel.ack.clone());
        }
        drop(channels);
        for ack in acks {
            ack.send_replace(Ack::Pending);
        }
    }

    /// Ends every subscription; later ones have ended when they are made.
    pub(super) fn close(&self) {
        let mut channels = self.channels.lock();
        channels.closed = true;
        let ended = std::mem::take(&mut *channels);
        channels.closed = true;
        drop(channels);
        for channel in ended.by_name.values() {
            channel.ack.send_replace(Ack::Closed);
        }
        drop(ended);
    }

    /// How many channels are held, and by how many subscriptions.
    pub(super) fn size(&self) -> (usize, usize) {
        let channels = self.channels.lock();
        let held = channels.by_name.values().filter(|channel| channel.holders > 0);
        held.fold((0, 0), |(names, holders), channel| {
            (names + 1, holders + channel.holders)
        })
    }
}

#[cfg(test)]
impl Channels {
    /// How many channels are kept in mind, lingering ones included.
    pub(super) fn known(&self) -> usize {
        self.channels.lock().by_name.len()
    }
}

impl ChannelTable {
    fn forget_the_idle(&mut self) {
        self.by_name.retain(|_, channel| channel.holders > 0);
        self.lingering = 0;
    }

    fn wanted(&self, name: &ChannelName, unlisten_delay: Duration) -> Wanted {
        match self.by_name.get(name) {
            None => Wanted::Gone,
            Some(channel) => match channel.idle_since {
                None => Wanted::Held,
                // Beyond what an instant can say means for ever.
                Some(since) => since
                    .checked_add(unlisten_delay)
                    .map_or(Wanted::Held, Wanted::DelayedUntil),
            },
        }
    }
}

impl Channel {
    fn new() -> Self {
        Self {
            holders: 0,
            ring: None,
            ack: watch::Sender::new(Ack::Pending),
            established: false,
            missed: false,
            idle_since: None,
        }
    }
}

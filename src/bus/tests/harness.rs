//! A bus whose worker is the test.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::checked_subscription::CheckedSubscription;
use super::model_store::ModelStore;
use super::op::{NotificationFate, Op};
use crate::bus::history_cache::HistoryCache;
use crate::bus::hub::{Hub, HubSettings};
use crate::bus::{BusSubscription, FleetEvent, OnSlow};
use crate::store::Record;

/// With small rings, so that subscribers are slow.
pub(super) const SETTINGS: HubSettings = HubSettings {
    stream_capacity: 4,
    all_capacity: 8,
    pending_streams: 3,
};

struct Harness {
    model_store: ModelStore,
    hub: Arc<Hub<FleetEvent>>,
    pages: Arc<HistoryCache<FleetEvent>>,
    late: VecDeque<(String, u64)>,
    subscriptions: Vec<CheckedSubscription>,
}

/// Does the steps, and then whatever is needed for everything to be found and received.
pub(super) fn run(steps: Vec<Op>, sweeps: bool) {
    let mut rig = Harness::new();
    for step in steps {
        rig.step(step);
    }
    rig.finish(sweeps);
}

impl Harness {
    fn new() -> Self {
        let model_store = ModelStore::default();
        Self {
            hub: Arc::new(Hub::new(SETTINGS, Arc::default(), Box::new(|| {}))),
            pages: HistoryCache::new(Arc::new(model_store.clone()), Duration::from_secs(10)),
            model_store,
            late: VecDeque::new(),
            subscriptions: Vec::new(),
        }
    }

    fn step(&mut self, step: Op) {
        match step {
            Op::Append { stream, fate } => {
                let event = self.model_store.append(&key(stream));
                match fate {
                    NotificationFate::Announced => {
                        self.hub.announced(&event.agent_id, event.seq..=event.seq);
                    }
                    NotificationFate::Late => self.late.push_back((event.agent_id, event.seq)),
                    NotificationFate::Lost => {}
                }
            }
            Op::AppendHere { stream } => {
                let event = self.model_store.append(&key(stream));
                self.hub.enqueue(&key(stream), &Record::from_event(event));
                self.hub.flush();
            }
            Op::LateNotification => {
                if let Some((key, seq)) = self.late.pop_front() {
                    self.hub.announced(&key, seq..=seq);
                }
            }
            Op::Forged { stream, first, more } => {
                self.hub.announced(&key(stream), first..=first.saturating_add(more));
            }
            Op::Start => self.start(),
            Op::Read { streams, limit, fails } => {
                self.read(streams, limit, fails);
            }
            Op::Sweep => self.sweep(),
            Op::Trim { stream, through } => self.model_store.trim(&key(stream), through),
            Op::Rewind { stream, keep } => self.rewind(&key(stream), keep),
            Op::SubscribeOne { stream, on_slow } => self.subscribe(Some(stream), None, on_slow),
            Op::SubscribeFrom { stream, after } => self.subscribe(Some(stream), Some(after), OnSlow::Replay),
            Op::SubscribeAll => self.subscribe(None, None, OnSlow::Replay),
            Op::Receive { subscription, items } => {
                if !self.subscriptions.is_empty() {
                    let at = subscription % self.subscriptions.len();
                    for _ in 0..items {
                        self.subscriptions[at].receive();
                    }
                }
            }
            Op::Unsubscribe { subscription } => {
                if !self.subscriptions.is_empty() {
                    let at = subscription % self.subscriptions.len();
                    self.subscriptions.remove(at);
                }
            }
        }
        self.note_ready();
    }

    fn start(&self) {
        if self.hub.baseline_wanted() {
            let listing = self.model_store.heads().into_iter();
            let listing = listing.map(|(key, head)| (Arc::from(key), head)).collect();
            self.hub.set_baseline(Some(listing));
        }
        let streams = self.hub.unstarted(2).into_iter();
        let heads: Vec<_> = streams
            .map(|stream| {
                let head = self.model_store.head(&stream.key);
                (stream, head)
            })
            .collect();
        self.hub.start(heads);
    }

    fn read(&self, streams: usize, limit: usize, fails: bool) -> bool {
        let ranges = self.hub.take_reads(streams);
        if ranges.is_empty() {
            return false;
        }
        if fails {
            self.hub.put_back(ranges);
            return true;
        }
        for range in ranges {
            let page = self.model_store.page(&range.key, range.after, limit);
            self.hub.deliver(range, page, limit);
        }
        true
    }

    fn sweep(&self) {
        self.hub.collect();
        for (key, head) in self.model_store.heads() {
            self.hub.found(&key, head);
        }
    }

    /// The store loses what was delivered, and the bus notices at once.
    fn rewind(&mut self, key: &str, keep: u64) {
        let cursors = self.hub.cursors(true);
        let Some(cursor) = cursors.into_iter().find(|cursor| *cursor.stream.key == *key) else {
            return;
        };
        if cursor.seq <= keep {
            return;
        }
        self.model_store.rewind(key, keep);
        self.hub.rewind(&cursor.stream, keep, true, keep);
        for watched in &mut self.subscriptions {
            watched.note_rewind(key, keep);
        }
    }

    fn subscribe(&mut self, stream: Option<u8>, after: Option<u64>, on_slow: OnSlow) {
        let attached = match stream {
            Some(stream) => self.hub.attach_one(&key(stream)),
            None => self.hub.attach_all(),
        };
        let attached = attached.expect("the hub is open");
        let (hub, pages) = (Arc::clone(&self.hub), Arc::clone(&self.pages));
        let subscription = BusSubscription::new(hub, pages, attached, after, on_slow);
        self.subscriptions
            .push(CheckedSubscription::new(subscription, after, on_slow));
    }

    fn note_ready(&mut self) {
        for watched in &mut self.subscriptions {
            watched.note_ready(&self.model_store);
        }
    }

    /// Everything is found and received in the end.
    fn finish(mut self, sweeps: bool) {
        while let Some((key, seq)) = self.late.pop_front() {
            self.hub.announced(&key, seq..=seq);
        }
        for _ in 0..3 {
            self.start();
            self.start();
            self.start();
            self.note_ready();
            // The hub asks for one when forged bells have taken the place of honest ones.
            if sweeps || self.hub.take_sweep_wanted() {
                self.sweep();
            }
            while self.read(100, 5, false) {}
        }
        for watched in &mut self.subscriptions {
            while watched.receive() {}
            watched.check(&self.model_store);
        }
    }
}

fn key(stream: u8) -> String {
    format!("stream:{stream}")
}

//! A bus whose tasks are replaced by the operations of a schedule.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::checked_subscription::CheckedSubscription;
use super::model_store::ModelStore;
use super::op::{NotificationFate, Op};
use crate::bus::history_cache::HistoryCache;
use crate::bus::hub::{Hub, HubSettings, Verdict};
use crate::bus::{BusSubscription, FleetEvent, OnSlow};

/// Small rings, so that subscribers lag.
pub(super) const SETTINGS: HubSettings = HubSettings {
    stream_capacity: 4,
    all_capacity: 8,
    pending_streams: 3,
};

struct Harness {
    model_store: ModelStore,
    hub: Arc<Hub<FleetEvent>>,
    history: Arc<HistoryCache<FleetEvent>>,
    /// Notifications that are delivered later.
    late: VecDeque<(String, u64)>,
    /// Where the next sweep of all streams starts, by the number of events that were appended before. Set while the hub has a baseline.
    swept: Option<u64>,
    subscriptions: Vec<CheckedSubscription>,
    /// The lowest numbers of the notifications that may wait for a start or a check.
    undecided: HashMap<String, u64>,
    /// The next sweep looks at every stream.
    reconnected: bool,
    /// The streams whose history was replaced.
    replaced: HashSet<String>,
}

/// Runs a schedule, lets the bus deliver the rest, and checks every subscription. `sweeps` indicates whether delivering the rest
/// takes a sweep.
///
/// # Panics
///
/// Panics if a subscription misses an event, gets one twice or out of order, or gets one that the store does not hold.
pub fn run(ops: Vec<Op>, sweeps: bool) {
    let mut harness = Harness::new();
    for op in ops {
        harness.apply(op);
    }
    harness.finish(sweeps);
}

impl Harness {
    fn new() -> Self {
        let model_store = ModelStore::default();
        Self {
            hub: Arc::new(Hub::new(SETTINGS, Arc::default(), Box::new(|_| {}))),
            history: HistoryCache::new(Arc::new(model_store.clone()), Duration::from_secs(10)),
            model_store,
            late: VecDeque::new(),
            swept: None,
            subscriptions: Vec::new(),
            undecided: HashMap::new(),
            reconnected: false,
            replaced: HashSet::new(),
        }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Append { stream, fate } => {
                let key = key(stream);
                let seq = self.model_store.append(&key).seq;
                match fate {
                    NotificationFate::Delivered => {
                        self.notify(&key, seq, 0);
                    }
                    NotificationFate::Late => self.late.push_back((key, seq)),
                    NotificationFate::Lost => {}
                }
            }
            Op::AppendHere { stream } => {
                let record = self.model_store.append(&key(stream));
                let seq = record.seq;
                self.hub.enqueue(&key(stream), seq, || record);
                self.hub.flush();
                self.note_notified(&key(stream), seq); // it may have become a notification
            }
            Op::DeliverLate => {
                if let Some((key, seq)) = self.late.pop_front() {
                    self.notify(&key, seq, 0);
                }
            }
            Op::InvalidNotification { stream, first, more } => {
                self.notify(&key(stream), first, more);
            }
            Op::Start => self.start(),
            Op::Read {
                streams,
                limit,
                fails,
                lacks,
            } => {
                self.read(streams, limit, fails, lacks);
            }
            Op::StaleHistory { reads, lacks } => self.model_store.answer_stale(reads, lacks),
            Op::Sweep => self.sweep(),
            Op::Trim { stream, through } => self.model_store.trim(&key(stream), through),
            Op::Rewind { stream, keep } => self.rewind(&key(stream), keep),
            Op::Replace { stream, keep, more } => self.replace(&key(stream), keep, more),
            Op::Settle => self.settle(),
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

    fn notify(&mut self, key: &str, first: u64, more: u64) {
        self.hub.on_notification(key, first..=first.saturating_add(more));
        self.note_notified(key, first);
    }

    fn note_notified(&mut self, key: &str, first: u64) {
        let undecided = self.undecided.entry(key.to_owned()).or_insert(first);
        *undecided = first.min(*undecided);
        for subscription in &mut self.subscriptions {
            subscription.note_earlier_start(key, first - 1);
        }
    }

    fn start(&mut self) {
        if self.hub.needs_baseline() {
            self.swept = Some(self.model_store.appended());
            let listing = self.model_store.heads().into_keys();
            let listing = listing
                .map(|key| {
                    let head = self.model_store.stream_head(&key);
                    (Arc::from(key), head)
                })
                .collect();
            self.hub.signal(self.hub.set_baseline(Some(listing)));
        }
        let streams = self.hub.unstarted(2).into_iter();
        let heads: Vec<_> = streams
            .map(|stream| {
                let head = self.model_store.stream_head(&stream.key);
                (stream, head)
            })
            .collect();
        self.hub.signal(self.hub.start(heads));
    }

    fn read(&mut self, streams: usize, limit: usize, fails: bool, lacks: u64) -> bool {
        let checks = self.hub.take_late_checks(streams);
        for check in &checks {
            if fails {
                self.hub.put_back_late(check);
            } else {
                self.hub
                    .decide_late(check, self.model_store.first_retained(&check.range));
            }
        }
        if !fails && checks.len() < streams {
            for cursor in self.hub.cursors(true) {
                self.undecided.remove(&*cursor.stream.key);
            }
        }
        let reads = self.hub.take_reads(streams, |_| true);
        if reads.is_empty() {
            return !checks.is_empty();
        }
        if fails {
            self.hub.put_back(reads);
            return true;
        }
        for read in reads {
            let page = self.model_store.page(&read.key, read.after, limit, lacks);
            self.hub.deliver(read, page, limit);
        }
        true
    }

    fn sweep(&mut self) {
        if self.hub.collect() {
            self.swept = None;
        }
        let all = self.swept.is_none() || std::mem::take(&mut self.reconnected);
        for cursor in self.hub.cursors(all) {
            let head = self.model_store.stream_head(&cursor.stream.key);
            self.hub.report_head(&cursor, head, false);
        }
        if let Some(swept) = self.swept.filter(|_| self.hub.has_subscriptions_to_all()) {
            for (key, head) in self.model_store.changed_since(swept) {
                self.hub.report_change(&key, head);
            }
            self.swept = Some(self.model_store.appended());
        }
        self.settle();
    }

    /// The worker compares the streams in doubt with the store.
    fn settle(&mut self) {
        for comparison in self.hub.take_doubts(usize::MAX) {
            let key = &comparison.stream.key;
            let stored = self.model_store.stored(key, comparison.seqs());
            if let Verdict::Replaced { resume_after, exact } = self.hub.settle(&comparison, &stored) {
                if !exact {
                    self.note_notified(key, 1);
                }
                for subscription in &mut self.subscriptions {
                    subscription.note_rewind(key, resume_after);
                }
            }
        }
    }

    /// Makes the store lose events and append others, which the bus has to notice.
    fn replace(&mut self, key: &str, keep: u64, more: u64) {
        if self.model_store.head(key) <= keep {
            return;
        }
        // The number after which a subscription resumes proves nothing about events that the bus has not delivered.
        if self.subscriptions.iter().any(CheckedSubscription::has_resumed) {
            while self.read(100, 5, false, 0) {}
        }
        self.model_store.rewind(key, keep);
        for _ in 0..more {
            self.model_store.append(key);
        }
        // The old history's notifications name numbers that may never exist again.
        self.late.retain(|(late, _)| late != key);
        for subscription in &mut self.subscriptions {
            subscription.note_replacement(key);
        }
        self.replaced.insert(key.to_owned());
        self.reconnected = true; // if nothing was appended, nothing else shows it to those who look at all streams
    }

    /// Makes the store lose delivered events, which the bus detects at once.
    fn rewind(&mut self, key: &str, keep: u64) {
        let cursors = self.hub.cursors(true);
        let Some(cursor) = cursors.into_iter().find(|cursor| *cursor.stream.key == *key) else {
            return;
        };
        if cursor.seq <= keep {
            return;
        }
        self.model_store.rewind(key, keep);
        let resume_at = self.model_store.stream_head(key);
        self.hub.rewind(&cursor.stream, resume_at, true, keep);
        for subscription in &mut self.subscriptions {
            subscription.note_rewind(key, keep);
        }
    }

    fn subscribe(&mut self, stream: Option<u8>, after: Option<u64>, on_slow: OnSlow) {
        let attached = match stream {
            Some(stream) => self.hub.attach_one(&key(stream), after),
            None => self.hub.attach_all(),
        };
        let delivered = self.hub.cursors(true).into_iter();
        let may_start_after = delivered
            .map(|cursor| {
                let key = cursor.stream.key.to_string();
                let undecided = self.undecided.get(&key).map_or(u64::MAX, |first| first - 1);
                (key, cursor.seq.min(undecided))
            })
            .collect();
        let attached = attached.expect("the hub is open");
        let (hub, history) = (Arc::clone(&self.hub), Arc::clone(&self.history));
        let subscription = BusSubscription::new(hub, history, attached, after, on_slow);
        let mut subscription = CheckedSubscription::new(subscription, after, on_slow, may_start_after);
        for key in &self.replaced {
            subscription.note_replacement(key);
        }
        self.subscriptions.push(subscription);
    }

    fn note_ready(&mut self) {
        for subscription in &mut self.subscriptions {
            subscription.note_ready(&self.model_store);
        }
    }

    /// Delivers everything and checks it.
    fn finish(mut self, sweeps: bool) {
        while let Some((key, seq)) = self.late.pop_front() {
            self.notify(&key, seq, 0);
        }
        for _ in 0..4 {
            self.start();
            self.start();
            self.start();
            self.note_ready();
            // The hub requests a sweep when invalid notifications have used up its room for valid ones.
            if sweeps || self.hub.take_sweep_request() {
                self.sweep();
            }
            while self.read(100, 5, false, 0) {}
            for subscription in &mut self.subscriptions {
                for _ in 0..50 {
                    while subscription.receive() {} // reads of history that find nothing wait, for example for a sweep
                }
            }
        }
        for subscription in &mut self.subscriptions {
            subscription.check(&self.model_store);
        }
    }
}

fn key(stream: u8) -> String {
    format!("stream:{stream}")
}

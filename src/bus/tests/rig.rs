//! A bus whose worker is the test.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::step::{Bell, Step};
use crate::bus::hub::{Hub, HubSettings};
use crate::bus::pages::{Pages, Source};
use crate::bus::{BusEvent, BusSubscription, FleetEvent, OnSlow, StreamEvent};
use crate::store::{MemoryStore, Page, Record};
use futures_core::future::BoxFuture;

struct Rig {
    store: MemoryStore,
    hub: Arc<Hub<FleetEvent>>,
    pages: Arc<Pages<FleetEvent>>,
    late: VecDeque<(String, u64)>,
    subscriptions: Vec<Watched>,
}

/// A subscription, and what it has had.
struct Watched {
    subscription: BusSubscription,
    /// Of each stream: the first number, and the last. What is between has come, or was said to be missing.
    had: BTreeMap<String, (u64, u64)>,
    after: Option<u64>,
    on_slow: OnSlow,
    /// What each stream held when it became ready.
    ready_at: Option<HashMap<String, u64>>,
    lagged: u64,
}

struct StoreSource(MemoryStore);

impl Source<FleetEvent> for StoreSource {
    fn read(&self, key: Arc<str>, after: u64, limit: usize) -> BoxFuture<'static, Option<Page<FleetEvent>>> {
        let page = self.0.replay_now(&key, after, limit);
        Box::pin(std::future::ready(Some(page)))
    }
}

/// A store, a hub with small rings, and pages.
pub(super) struct Bus {
    pub(super) store: MemoryStore,
    pub(super) hub: Arc<Hub<FleetEvent>>,
    pages: Arc<Pages<FleetEvent>>,
}

impl Bus {
    pub(super) fn new() -> Self {
        let store = MemoryStore::new();
        let settings = HubSettings {
            stream_capacity: 4,
            all_capacity: 8,
            pending_streams: 3,
        };
        Self {
            hub: Arc::new(Hub::new(settings, Arc::default(), Box::new(|| {}))),
            pages: Pages::new(Arc::new(StoreSource(store.clone())), Duration::from_secs(10)),
            store,
        }
    }

    /// A subscription that has started.
    pub(super) fn subscribe(&self, key: &str, on_slow: OnSlow) -> BusSubscription {
        let attached = self.hub.attach_one(key).expect("the hub is open");
        let unstarted = self.hub.unstarted(1).into_iter();
        let heads: Vec<_> = unstarted
            .map(|stream| (stream, self.store.high_water_now(key)))
            .collect();
        self.hub.start(heads);
        BusSubscription::new(Arc::clone(&self.hub), Arc::clone(&self.pages), attached, None, on_slow)
    }

    /// A subscription to all streams of an empty store, which has started.
    pub(super) fn subscribe_all(&self) -> BusSubscription {
        let attached = self.hub.attach_all().expect("the hub is open");
        self.hub.set_baseline(Some(HashMap::new()));
        BusSubscription::new(
            Arc::clone(&self.hub),
            Arc::clone(&self.pages),
            attached,
            None,
            OnSlow::Replay,
        )
    }

    /// Appends so many events and delivers them.
    pub(super) fn append(&self, key: &str, events: u64) {
        for _ in 0..events {
            let event = self
                .store
                .append_now(FleetEvent::custom(key, "n", ""))
                .expect("the key is good");
            self.hub.hear(key, event.seq..=event.seq);
            self.read();
        }
    }

    fn read(&self) {
        for range in self.hub.take_ranges(10) {
            let page = self.store.replay_now(&range.key, range.after, 100);
            self.hub.deliver(range, page, 100);
        }
    }

    /// The history up to the head is another one from `resume_after` on.
    pub(super) fn rewind(&self, key: &str, resume_after: u64, exact: bool) {
        let cursor = self
            .hub
            .cursors(true)
            .into_iter()
            .find(|cursor| *cursor.stream.key == *key)
            .expect("it is there");
        self.hub
            .rewind(&cursor.stream, resume_after, exact, self.store.high_water_now(key));
        self.read();
    }
}

/// Everything that is there.
pub(super) fn drain(subscription: &mut BusSubscription) -> Vec<BusEvent> {
    let mut cx = Context::from_waker(Waker::noop());
    std::iter::from_fn(|| match subscription.poll_recv(&mut cx) {
        Poll::Ready(item) => item,
        Poll::Pending => None,
    })
    .collect()
}

/// Does the steps, and then whatever is needed for everything to be found and received.
pub(super) fn run(steps: Vec<Step>, sweeps: bool) {
    let mut rig = Rig::new();
    for step in steps {
        rig.step(step);
    }
    rig.finish(sweeps);
}

impl Rig {
    fn new() -> Self {
        let Bus { store, hub, pages } = Bus::new();
        Self {
            hub,
            pages,
            store,
            late: VecDeque::new(),
            subscriptions: Vec::new(),
        }
    }

    fn heads(&self) -> HashMap<String, u64> {
        (0..4)
            .map(key)
            .map(|key| (key.clone(), self.store.high_water_now(&key)))
            .filter(|&(_, head)| head > 0)
            .collect()
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Append { stream, bell } => {
                let event = self.append(stream);
                match bell {
                    Bell::Heard => {
                        self.hub.hear(&event.agent_id, event.seq..=event.seq);
                    }
                    Bell::Late => self.late.push_back((event.agent_id, event.seq)),
                    Bell::Lost => {}
                }
            }
            Step::AppendHere { stream } => {
                let event = self.append(stream);
                self.hub.enqueue(&event.agent_id, &Record::from_event(event.clone()));
                self.hub.flush();
            }
            Step::LateBell => {
                if let Some((key, seq)) = self.late.pop_front() {
                    self.hub.hear(&key, seq..=seq);
                }
            }
            Step::Forged { stream, first, more } => {
                self.hub.hear(&key(stream), first..=first.saturating_add(more));
            }
            Step::Start => self.start(),
            Step::Read { streams, limit, fails } => {
                self.read(streams, limit, fails);
            }
            Step::Sweep => self.sweep(),
            Step::SubscribeOne { stream, on_slow } => self.subscribe(Some(stream), None, on_slow),
            Step::SubscribeFrom { stream, after } => self.subscribe(Some(stream), Some(after), OnSlow::Replay),
            Step::SubscribeAll => self.subscribe(None, None, OnSlow::Replay),
            Step::Receive { subscription, items } => {
                if !self.subscriptions.is_empty() {
                    let at = subscription % self.subscriptions.len();
                    self.receive(at, items);
                }
            }
            Step::Unsubscribe { subscription } => {
                if !self.subscriptions.is_empty() {
                    let at = subscription % self.subscriptions.len();
                    self.subscriptions.remove(at);
                }
            }
        }
        self.note_ready();
    }

    fn append(&self, stream: u8) -> FleetEvent {
        self.store
            .append_now(FleetEvent::custom(key(stream), "n", ""))
            .expect("the key is good")
    }

    fn start(&self) {
        if self.hub.baseline_wanted() {
            let listing = self
                .heads()
                .into_iter()
                .map(|(key, head)| (Arc::from(key), head))
                .collect();
            self.hub.set_baseline(Some(listing));
        }
        let streams = self.hub.unstarted(2);
        let heads: Vec<_> = streams
            .into_iter()
            .map(|stream| {
                let head = self.store.high_water_now(&stream.key);
                (stream, head)
            })
            .collect();
        self.hub.start(heads);
    }

    fn read(&self, streams: usize, limit: usize, fails: bool) -> bool {
        let ranges = self.hub.take_ranges(streams);
        if ranges.is_empty() {
            return false;
        }
        if fails {
            self.hub.put_back(ranges);
            return true;
        }
        for range in ranges {
            let page = self.store.replay_now(&range.key, range.after, limit);
            self.hub.deliver(range, page, limit);
        }
        true
    }

    fn sweep(&self) {
        self.hub.collect();
        for (key, head) in self.heads() {
            self.hub.found(&key, head);
        }
    }

    fn subscribe(&mut self, stream: Option<u8>, after: Option<u64>, on_slow: OnSlow) {
        let attached = match stream {
            Some(stream) => self.hub.attach_one(&key(stream)),
            None => self.hub.attach_all(),
        };
        let attached = attached.expect("the hub is open");
        self.subscriptions.push(Watched {
            subscription: BusSubscription::new(
                Arc::clone(&self.hub),
                Arc::clone(&self.pages),
                attached,
                after,
                on_slow,
            ),
            had: BTreeMap::new(),
            after,
            on_slow,
            ready_at: None,
            lagged: 0,
        });
    }

    fn note_ready(&mut self) {
        let heads = self.heads();
        let mut cx = Context::from_waker(Waker::noop());
        for watched in &mut self.subscriptions {
            let ready = std::pin::pin!(watched.subscription.ready());
            if watched.ready_at.is_none() && ready.poll(&mut cx).is_ready() {
                watched.ready_at = Some(heads.clone());
            }
        }
    }

    /// True if there was an item.
    fn receive(&mut self, at: usize, items: usize) -> bool {
        let heads = self.heads();
        let watched = &mut self.subscriptions[at];
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..items {
            match watched.subscription.poll_recv(&mut cx) {
                Poll::Pending => return false,
                Poll::Ready(None) => panic!("the hub is open"),
                Poll::Ready(Some(item)) => watched.take(item, &heads),
            }
        }
        true
    }

    /// Everything is found and received in the end.
    fn finish(mut self, sweeps: bool) {
        while let Some((key, seq)) = self.late.pop_front() {
            self.hub.hear(&key, seq..=seq);
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
        let heads = self.heads();
        for at in 0..self.subscriptions.len() {
            while self.receive(at, 1) {}
            self.subscriptions[at].check(&heads);
        }
    }
}

impl Watched {
    fn take(&mut self, item: BusEvent, heads: &HashMap<String, u64>) {
        match item {
            BusEvent::Event(event) => {
                let key = event.stream_key();
                assert!(self.subscription.stream_key().is_none_or(|own| own == key));
                assert!(event.seq <= heads[key], "an event that nobody has appended");
                match self.had.get_mut(key) {
                    Some((_, last)) => {
                        let lagged = std::mem::take(&mut self.lagged);
                        assert_eq!(event.seq, *last + lagged + 1, "in {key}");
                        *last = event.seq;
                    }
                    None => {
                        if let Some(after) = self.after {
                            assert_eq!(event.seq, after + 1, "the first, in {key}");
                        }
                        let lagged = std::mem::take(&mut self.lagged);
                        self.had.insert(key.to_owned(), (event.seq - lagged, event.seq));
                    }
                }
            }
            BusEvent::Lagged(n) if self.on_slow == OnSlow::Report => self.lagged += n,
            BusEvent::Rewound(rewound) => {
                assert_eq!(Some(rewound.delivered), self.after, "it asked for more than there was");
                assert!(!rewound.exact);
                self.after = Some(rewound.resume_after);
            }
            other => panic!("{other:?}"),
        }
    }

    fn check(&self, heads: &HashMap<String, u64>) {
        let ready_at = self.ready_at.as_ref().expect("everything has started");
        for (key, &head) in heads {
            if self.subscription.stream_key().is_some_and(|own| own != key) {
                continue;
            }
            let owed_from = self.after.unwrap_or_else(|| ready_at.get(key).copied().unwrap_or(0)) + 1;
            match self.had.get(key) {
                None => assert!(owed_from > head, "{key}: nothing came, {owed_from} to {head} are owed"),
                Some(&(first, last)) => {
                    assert!(first <= owed_from, "{key}: began with {first}, {owed_from} is owed");
                    assert_eq!(last, head, "{key}: the last");
                }
            }
        }
    }
}

fn key(stream: u8) -> String {
    format!("stream:{stream}")
}

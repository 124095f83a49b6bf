//! The hub's table of streams, and how subscriptions come and go.

use std::collections::{HashMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;

use parking_lot::Mutex;

use super::lag_accounting::LagAccounting;
use super::publish_queue::{PublishQueue, QueuedItems};
use super::stream::{Stream, StreamRef, StreamSlot};
use super::{Item, PastRewind};
use crate::bus::BusError;
use crate::bus::gate::Gate;
use crate::bus::stats::Counters;
use crate::ring::{Builder, OnLag, Publisher, Subscriber};

/// Bounds of the hub.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HubSettings {
    /// Events that the ring of one stream holds for its subscriptions.
    pub(crate) stream_capacity: usize,
    /// Events that the ring for the subscriptions to all streams holds.
    pub(crate) all_capacity: usize,
    /// Streams with a doorbell that is not looked at yet, beyond which a sweep takes over.
    pub(crate) pending_streams: usize,
}

/// Where a subscription starts.
#[derive(Clone, Debug)]
pub(crate) enum StartPosition {
    /// After this number of its stream.
    One(u64),
    /// After these numbers, by slot; streams that come later start after their base.
    All(Arc<[u64]>),
}

pub(crate) type StartSignal = Arc<Gate<Result<StartPosition, BusError>>>;

/// A stretch of a stream to read.
#[derive(Debug)]
pub(crate) struct PendingRead {
    pub(crate) key: Arc<str>,
    pub(crate) after: u64,
    pub(super) target: Target,
    /// How far the doorbells that are answered by this range reach.
    pub(super) asked: u64,
}

#[derive(Debug)]
pub(super) enum Target {
    Stream {
        slot: StreamSlot,
        version: u64,
    },
    /// Nobody here knows the stream; the store may.
    Unverified,
}

/// What a new subscription gets.
pub(crate) struct Attached<E: Send + Sync + 'static> {
    pub(crate) feed: Subscriber<Item<E>>,
    pub(crate) gate: StartSignal,
    /// The stream; none for a subscription to all.
    pub(crate) stream: Option<StreamRef>,
    /// The number of the last rewind before it.
    pub(crate) rewinds: u64,
    /// Of a subscription to all: how many [more](Hub::more_before) events than items there were before it.
    pub(crate) more: i64,
}

pub(crate) struct Hub<E: Send + Sync + 'static> {
    pub(super) table: Mutex<Table<E>>,
    pub(super) publish_queue: PublishQueue<E>,
    pub(super) settings: HubSettings,
    pub(crate) counters: Arc<Counters>,
    /// Tells the worker that there is something to do.
    pub(super) wakeup: Box<dyn Fn() + Send + Sync>,
}

pub(super) struct Table<E: Send + Sync + 'static> {
    pub(super) by_key: HashMap<Arc<str>, StreamSlot>,
    pub(super) streams: Vec<Option<Stream<E>>>,
    free: Vec<StreamSlot>,
    next_version: u64,
    /// Counts starts and deliveries, to tell which came first.
    pub(super) clock: u64,
    pub(super) all: All<E>,
    /// Streams with something to read.
    pub(super) queue: VecDeque<StreamSlot>,
    /// Announced events of streams that are not in the table. Only while somebody listens to all streams.
    pub(super) unverified: HashMap<Arc<str>, RangeInclusive<u64>>,
    /// Histories that were replaced, the oldest first.
    pub(super) rewinds: VecDeque<PastRewind>,
    /// Streams without a cursor.
    pub(super) unstarted: Vec<StreamSlot>,
    /// Streams whose high-water mark somebody wants to know for sure.
    pub(super) unchecked: Vec<StreamSlot>,
    /// Something was announced that the table had no room for, or nobody could read.
    pub(super) sweep_wanted: bool,
    pub(super) closed: bool,
    /// Streams at which it pays to look for those that nobody listens to.
    collect_at: usize,
}

/// The subscriptions to all streams.
pub(super) struct All<E: Send + Sync + 'static> {
    pub(super) feed: Option<Publisher<Item<E>>>,
    pub(super) subscriptions: usize,
    pub(super) baseline: Baseline,
    pub(super) starting: Vec<StartSignal>,
    pub(super) started_at: u64,
    /// The items of `feed` that are not one event each.
    lag_accounting: LagAccounting,
}

impl<E: Send + Sync + 'static> All<E> {
    /// Takes down items that go to the feed, if there is one.
    pub(super) fn note(&mut self, items: &[Item<E>]) {
        if let Some(feed) = &self.feed {
            let oldest = feed.next_seq().saturating_sub(feed.capacity() as u64);
            self.lag_accounting.note(items, oldest);
        }
    }
}

/// How far the streams that are not in the table are delivered: what they held when the first subscription to all began.
pub(super) enum Baseline {
    /// The worker has not asked the store yet.
    Missing,
    /// These streams had these numbers, and there were no others.
    Complete(HashMap<Arc<str>, u64>),
    /// The store does not know: doorbells tell where a stream begins.
    Unknown,
}

impl<E: Send + Sync + 'static> Table<E> {
    pub(super) fn stream(&self, slot: StreamSlot) -> &Stream<E> {
        self.streams[slot.index()].as_ref().expect("a slot that is in use")
    }

    pub(super) fn stream_mut(&mut self, slot: StreamSlot) -> &mut Stream<E> {
        self.streams[slot.index()].as_mut().expect("a slot that is in use")
    }

    /// The stream, unless another history or another stream has taken its place.
    pub(super) fn current(&mut self, slot: StreamSlot, version: u64) -> Option<&mut Stream<E>> {
        self.streams
            .get_mut(slot.index())?
            .as_mut()
            .filter(|stream| stream.version == version)
    }

    pub(super) fn new_version(&mut self) -> u64 {
        self.next_version += 1;
        self.next_version
    }

    pub(super) fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// A new stream, delivered up to `cursor`.
    pub(super) fn insert(&mut self, key: Arc<str>, cursor: Option<u64>) -> StreamSlot {
        let version = self.new_version();
        let stream = Stream::new(Arc::clone(&key), version, cursor);
        let slot = match self.free.pop() {
            Some(slot) => {
                self.streams[slot.index()] = Some(stream);
                slot
            }
            None => {
                let slot = StreamSlot(u32::try_from(self.streams.len()).expect("fewer than 2^32 streams"));
                self.streams.push(Some(stream));
                slot
            }
        };
        self.by_key.insert(key, slot);
        slot
    }

    pub(super) fn queue(&mut self, slot: StreamSlot) {
        let stream = self.stream_mut(slot);
        if !stream.queued {
            stream.queued = true;
            self.queue.push_back(slot);
        }
    }

    /// Takes the streams that have a cursor now from the list of those that have none.
    pub(super) fn forget_started(&mut self) {
        let streams = &self.streams;
        let without = |slot: &StreamSlot| {
            streams[slot.index()]
                .as_ref()
                .is_some_and(|stream| stream.cursor.is_none())
        };
        self.unstarted.retain(without);
    }

    /// The feeds that a stream's events go to.
    pub(super) fn feeds(&self, slot: StreamSlot) -> [Option<Publisher<Item<E>>>; 2] {
        [self.stream(slot).feed.clone(), self.all.feed.clone()]
    }

    /// Where a subscription to all that starts now starts in each stream.
    pub(super) fn snapshot(&self) -> Arc<[u64]> {
        self.streams
            .iter()
            .map(|stream| stream.as_ref().and_then(|stream| stream.cursor).unwrap_or(UNSET))
            .collect()
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = (StreamSlot, &Stream<E>)> {
        self.streams
            .iter()
            .enumerate()
            .filter_map(|(index, stream)| Some((StreamSlot(u32::try_from(index).ok()?), stream.as_ref()?)))
    }
}

/// In place of a number, for a stream in which a subscription to all has not started.
pub(crate) const UNSET: u64 = u64::MAX;

impl<E: Send + Sync + 'static> Hub<E> {
    pub(crate) fn new(settings: HubSettings, counters: Arc<Counters>, wakeup: Box<dyn Fn() + Send + Sync>) -> Self {
        Self {
            table: Mutex::new(Table {
                by_key: HashMap::new(),
                streams: Vec::new(),
                free: Vec::new(),
                next_version: 0,
                clock: 0,
                all: All {
                    feed: None,
                    subscriptions: 0,
                    baseline: Baseline::Missing,
                    starting: Vec::new(),
                    started_at: 0,
                    lag_accounting: LagAccounting::starting_at(0),
                },
                queue: VecDeque::new(),
                unverified: HashMap::new(),
                rewinds: VecDeque::new(),
                unstarted: Vec::new(),
                unchecked: Vec::new(),
                sweep_wanted: false,
                closed: false,
                collect_at: 64,
            }),
            publish_queue: PublishQueue::default(),
            settings,
            counters,
            wakeup,
        }
    }

    fn ring(capacity: usize, feed: &mut Option<Publisher<Item<E>>>) -> Subscriber<Item<E>> {
        match feed {
            Some(feed) => feed.subscribe(),
            None => {
                let (publisher, subscriber) = Builder::new(capacity)
                    .on_lag(OnLag::Headroom(capacity as u64 / 4))
                    .channel()
                    .expect("the bus's builder has checked the capacity");
                *feed = Some(publisher);
                subscriber
            }
        }
    }

    /// A subscription to one stream. Its gate opens when the worker has fixed the start, or at once if the stream is live.
    pub(crate) fn attach_one(&self, key: &str) -> Result<Attached<E>, BusError> {
        let mut table = self.table.lock();
        if table.closed {
            return Err(BusError::Closed);
        }
        let slot = match table.by_key.get(key) {
            Some(&slot) => slot,
            None => {
                let key: Arc<str> = key.into();
                let cold = match &mut table.all.baseline {
                    Baseline::Complete(cold) => Some(cold.remove(&key).unwrap_or(0)),
                    Baseline::Missing | Baseline::Unknown => None,
                };
                let slot = table.insert(key, cold);
                if cold.is_none() {
                    table.unstarted.push(slot);
                }
                slot
            }
        };
        let tick = table.tick();
        let stream = table.stream_mut(slot);
        stream.subscriptions += 1;
        let feed = Self::ring(self.settings.stream_capacity, &mut stream.feed);
        let gate = match stream.cursor {
            Some(cursor) => {
                stream.started_at = tick;
                Gate::open(Ok(StartPosition::One(cursor)))
            }
            None => {
                let gate = Gate::shut();
                stream.starting.push(Arc::clone(&gate));
                gate
            }
        };
        let stream = StreamRef {
            slot,
            key: Arc::clone(&stream.key),
            version: stream.version,
        };
        let wakeup = !table.unstarted.is_empty();
        let rewinds = table.rewinds.back().map_or(0, |last| last.number);
        drop(table);
        if wakeup {
            (self.wakeup)();
        }
        Ok(Attached {
            feed,
            gate,
            stream: Some(stream),
            rewinds,
            more: 0,
        })
    }

    /// A subscription to all streams.
    pub(crate) fn attach_all(&self) -> Result<Attached<E>, BusError> {
        let mut table = self.table.lock();
        if table.closed {
            return Err(BusError::Closed);
        }
        let tick = table.tick();
        table.all.subscriptions += 1;
        let is_new = table.all.feed.is_none();
        let feed = Self::ring(self.settings.all_capacity, &mut table.all.feed);
        if is_new {
            table.all.lag_accounting = LagAccounting::starting_at(feed.position());
        }
        let more = table.all.lag_accounting.more_before(feed.position());
        let wakeup = matches!(table.all.baseline, Baseline::Missing);
        let gate = if wakeup {
            let gate = Gate::shut();
            table.all.starting.push(Arc::clone(&gate));
            gate
        } else {
            table.all.started_at = tick;
            Gate::open(Ok(StartPosition::All(table.snapshot())))
        };
        let rewinds = table.rewinds.back().map_or(0, |last| last.number);
        drop(table);
        if wakeup {
            (self.wakeup)();
        }
        Ok(Attached {
            feed,
            gate,
            stream: None,
            rewinds,
            more,
        })
    }

    /// A subscription to `slot`, or to all, is gone.
    pub(crate) fn detach(&self, slot: Option<StreamSlot>, gate: &StartSignal) {
        let mut table = self.table.lock();
        let starting = match slot {
            Some(slot) => {
                let stream = table.stream_mut(slot);
                stream.subscriptions -= 1;
                &mut stream.starting
            }
            None => {
                table.all.subscriptions -= 1;
                if table.all.subscriptions == 0 {
                    // From now on nobody looks after the streams that are not in the table.
                    table.all.baseline = Baseline::Missing;
                    table.unverified = HashMap::new();
                }
                &mut table.all.starting
            }
        };
        starting.retain(|waiting| !Arc::ptr_eq(waiting, gate));
    }

    /// [Collects](Self::collect) if the table has doubled since. For a bus without a timer.
    pub(crate) fn collect_now_and_then(&self) {
        let mut table = self.table.lock();
        if table.by_key.len() < table.collect_at {
            return;
        }
        drop(table);
        self.collect();
        table = self.table.lock();
        table.collect_at = 2 * table.by_key.len().max(32);
    }

    /// Forgets the streams that nobody listens to any more. Not done at once, since who leaves often comes back. True if nobody
    /// listens to all streams, so that the next who does needs another baseline.
    pub(crate) fn collect(&self) -> bool {
        let mut table = self.table.lock();
        if table.all.subscriptions > 0 {
            // Subscriptions to all know streams by slot. Only the rings of single streams can go.
            for stream in table
                .streams
                .iter_mut()
                .flatten()
                .filter(|stream| stream.subscriptions == 0)
            {
                stream.feed = None;
            }
            return false;
        }
        table.all.feed = None;
        for index in 0..table.streams.len() {
            let Some(stream) = table.streams[index].take_if(|stream| stream.subscriptions == 0) else {
                continue;
            };
            let slot = table
                .by_key
                .remove(&stream.key)
                .expect("every stream is found by its key");
            if stream.queued {
                table.queue.retain(|&queued| queued != slot);
            }
            table.free.push(slot);
        }
        table.forget_started();
        true
    }

    /// Ends all subscriptions, after what is in their rings.
    pub(crate) fn close(&self) {
        let (gates, feeds) = {
            let mut table = self.table.lock();
            table.closed = true;
            let mut gates = std::mem::take(&mut table.all.starting);
            let mut feeds = vec![table.all.feed.take()];
            for stream in table.streams.iter_mut().flatten() {
                gates.append(&mut stream.starting);
                feeds.push(stream.feed.take());
            }
            table.queue.clear();
            (gates, feeds)
        };
        self.publish_queue.flush();
        drop(feeds); // wakes the subscribers, so not under the lock
        for gate in gates {
            gate.set(Err(BusError::Closed));
        }
    }

    /// How many subscriptions there are.
    pub(crate) fn subscriptions(&self) -> usize {
        let table = self.table.lock();
        let streams = table.streams.iter().flatten();
        table.all.subscriptions + streams.map(|stream| stream.subscriptions).sum::<usize>()
    }

    /// How many streams are looked after.
    pub(crate) fn streams(&self) -> usize {
        self.table.lock().by_key.len()
    }

    /// Puts items on their way into the rings.
    pub(super) fn push(&self, table: &mut Table<E>, slot: StreamSlot, items: Vec<Item<E>>) {
        table.all.note(&items);
        self.publish_queue.push(QueuedItems {
            feeds: table.feeds(slot),
            items,
        });
    }

    /// How many more events than items there were in the ring of all streams before a position. It may count, too, what comes after and
    /// is overwritten.
    pub(crate) fn more_before(&self, position: u64) -> i64 {
        self.table.lock().all.lag_accounting.more_before(position)
    }

    /// The stream in a slot of which a subscription has had an item.
    pub(crate) fn stream_ref(&self, slot: StreamSlot) -> StreamRef {
        let table = self.table.lock();
        let stream = table.stream(slot);
        StreamRef {
            slot,
            key: Arc::clone(&stream.key),
            version: stream.version,
        }
    }

    /// The number after which a subscription to all starts in a stream that it did not know.
    pub(crate) fn base(&self, slot: StreamSlot) -> u64 {
        self.table.lock().stream(slot).base
    }

    /// Every stream, how far it is delivered, and where a late doorbell has last [lowered](super::StreamNoticeKind::Lowered) it to.
    pub(crate) fn delivered(&self) -> Vec<(StreamSlot, u64, Option<u64>)> {
        let table = self.table.lock();
        let delivered = |(slot, stream): (StreamSlot, &Stream<E>)| Some((slot, stream.cursor?, stream.lowered));
        table.slots().filter_map(delivered).collect()
    }

    /// Where a late doorbell has last [lowered](super::StreamNoticeKind::Lowered) a stream to.
    pub(crate) fn lowered(&self, slot: StreamSlot) -> Option<u64> {
        self.table.lock().stream(slot).lowered
    }
}

//! The state of a subscription. It takes items from the ring while it keeps up, and from the store's history where events are
//! missing.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::FutureExt as _;

use super::OnSlow;
use super::cursors::Cursors;
use crate::bus::history_cache::{HistoryCache, HistoryPage, PageFetch};
use crate::bus::hub::{
    Attached, Era, Hub, PastRewind, RingItem, StartPosition, StartSignal, StartWait, StreamIndex, StreamNotice,
    StreamNoticeKind, StreamRef,
};
use crate::bus::{BusError, BusEvent, Gap, Rewound, StreamEvent};
use crate::ring::{Lagged, RecvError, Subscriber, coop};

pub(super) struct StateMachine<E: StreamEvent> {
    hub: Arc<Hub<E>>,
    history: Arc<HistoryCache<E>>,
    feed: Subscriber<RingItem<E>>,
    start: StartSignal,
    stream: Option<StreamRef>,
    on_slow: OnSlow,
    phase: Phase,
    /// Streams of which events are missing, and the number up to which they have to be read from the history.
    behind: VecDeque<(StreamIndex, u64)>,
    history_read: Option<HistoryRead<E>>,
    /// The number of reads in a row that found nothing, although events are missing.
    empty_reads: u32,
    /// An item of the ring that is delivered after the events in `behind`.
    held: Option<RingItem<E>>,
    /// When the subscription was added, by the hub's clock.
    attached_at: u64,
    /// The number of the last rewind that this subscription handled.
    last_rewind: u64,
    /// Events minus items in the ring of all streams, before the next item.
    surplus: i128,
    /// `Rewound` items to deliver next: for a start beyond the end of the stream, and for rewinds whose notices were lost with a lag.
    rewound_items: VecDeque<BusEvent<E>>,
    /// Streams whose rewind was handled before the ring has come to its notice, and the era that the subscription is in. Until the ring
    /// catches up, it may still hold items of older eras.
    ahead_of_ring: Vec<(StreamIndex, Era)>,
}

enum Phase {
    /// Waits for the start. `after` is the number after which the subscriber wants to start, if it has named one.
    Starting {
        start: StartWait,
        after: Option<u64>,
    },
    Started(Cursors),
    Ended,
}

/// A page of the history that is being fetched or delivered.
struct HistoryRead<E> {
    stream: StreamRef,
    /// The number up to which records are delivered.
    through: u64,
    fetch: PageFetch<E>,
    /// The fetched page, and the index of the next record.
    page: Option<(Arc<HistoryPage<E>>, usize)>,
}

impl<E: StreamEvent> Drop for StateMachine<E> {
    fn drop(&mut self) {
        self.hub
            .detach(self.stream.as_ref().map(|stream| stream.index), &self.start);
        self.start.set(Err(BusError::Closed));
    }
}

/// The outcome of handling an item.
enum Step<E> {
    Yield(BusEvent<E>),
    Continue,
}

impl<E: StreamEvent> StateMachine<E> {
    pub(super) fn new(
        hub: Arc<Hub<E>>,
        history: Arc<HistoryCache<E>>,
        attached: Attached<E>,
        after: Option<u64>,
        on_slow: OnSlow,
    ) -> Self {
        let Attached {
            feed,
            start,
            stream,
            attached_at,
            last_rewind,
            surplus,
        } = attached;
        let phase = Phase::Starting {
            start: start.wait(),
            after,
        };
        Self {
            hub,
            history,
            feed,
            start,
            stream,
            on_slow,
            phase,
            behind: VecDeque::new(),
            history_read: None,
            empty_reads: 0,
            held: None,
            attached_at,
            last_rewind,
            surplus,
            rewound_items: VecDeque::new(),
            ahead_of_ring: Vec::new(),
        }
    }

    pub(super) fn start(&self) -> &StartSignal {
        &self.start
    }

    pub(super) fn stream_key(&self) -> Option<&str> {
        self.stream.as_ref().map(|stream| &*stream.key)
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<BusEvent<E>>> {
        loop {
            match &mut self.phase {
                Phase::Ended => return Poll::Ready(None),
                Phase::Starting { start, after } => {
                    let after = *after;
                    match ready!(start.as_mut().poll(cx)) {
                        Ok(start) => self.begin(&start, after),
                        Err(_) => self.phase = Phase::Ended,
                    }
                    continue;
                }
                Phase::Started(_) => {}
            }
            // What is older comes first: rewinds, then history, then the item that waits for the history, then the ring.
            if let Some(item) = self.rewound_items.pop_front() {
                return Poll::Ready(Some(item));
            }
            if self.history_read.is_some() {
                match ready!(self.poll_history(cx)) {
                    Step::Yield(item) => return Poll::Ready(Some(item)),
                    Step::Continue => continue,
                }
            }
            if let Some(&(index, through)) = self.behind.front() {
                let at = self.cursor(index);
                if at >= through {
                    self.behind.pop_front();
                } else {
                    self.read(index, at, through);
                }
                continue;
            }
            let step = match self.held.take() {
                Some(item) => self.on_item(item),
                None => match ready!(self.feed.poll_recv(cx)) {
                    Ok(item) => {
                        self.surplus += i128::from(item.events()) - 1;
                        self.on_item(item)
                    }
                    Err(RecvError::Lagged(lagged)) => self.on_lag(lagged),
                    Err(RecvError::Closed) => {
                        self.phase = Phase::Ended;
                        Step::Continue
                    }
                },
            };
            if let Step::Yield(item) = step {
                return Poll::Ready(Some(item));
            }
        }
    }

    fn cursor(&mut self, index: StreamIndex) -> u64 {
        match &mut self.phase {
            Phase::Started(cursors) => cursors.get(&self.hub, index),
            Phase::Starting { .. } | Phase::Ended => unreachable!("only a started subscription has items"),
        }
    }

    fn set_cursor(&mut self, index: StreamIndex, seq: u64) {
        if let Phase::Started(cursors) = &mut self.phase {
            cursors.set(&self.hub, index, seq);
        }
    }

    fn begin(&mut self, start: &StartPosition, after: Option<u64>) {
        let (Some(after), &StartPosition::One(high_water), Some(stream)) = (after, start, &self.stream) else {
            self.phase = Phase::Started(Cursors::at(start));
            return;
        };
        let (index, stream_key) = (stream.index, Arc::clone(&stream.key));
        // The store's answer at the start decides, not what is appended until the subscription is polled.
        let from = after.min(high_water);
        self.phase = Phase::Started(Cursors::after(from));
        // What the hub has not delivered yet comes through the ring: the hub watches over the history of what it has delivered.
        self.behind
            .push_back((index, high_water.min(self.hub.delivered_stream(index).1)));
        if after > high_water {
            self.rewound_items.push_back(BusEvent::Rewound(Rewound {
                stream_key,
                delivered: after,
                resume_after: high_water,
                exact: false,
            }));
        }
    }

    /// Handles an item of the feed.
    fn on_item(&mut self, item: RingItem<E>) -> Step<E> {
        if !self.ahead_of_ring.is_empty() && self.is_superseded(&item) {
            return Step::Continue;
        }
        match &item {
            RingItem::Event { index, seq, .. } => self.on_numbered(*index, *seq, item),
            RingItem::StreamNotice(notice) => {
                let notice = Arc::clone(notice);
                match notice.kind {
                    StreamNoticeKind::Undecodable { seq, .. } => self.on_numbered(notice.index, seq, item),
                    _ => self.on_notice(&notice, &item),
                }
            }
        }
    }

    /// Returns `true` if an item belongs to a history that this subscription has left. The ring has caught up when it yields the
    /// notice of the rewind, or an item that was published after it.
    fn is_superseded(&mut self, item: &RingItem<E>) -> bool {
        let (index, era, rewind) = match item {
            RingItem::Event { index, era, .. } => (*index, *era, None),
            RingItem::StreamNotice(notice) => match notice.kind {
                StreamNoticeKind::Rewound(rewind) => (notice.index, notice.era, Some(rewind)),
                _ => (notice.index, notice.era, None),
            },
        };
        let Some(at) = self.ahead_of_ring.iter().position(|&(ahead, _)| ahead == index) else {
            return false;
        };
        let caught_up =
            self.ahead_of_ring[at].1 == era || rewind.is_some_and(|rewind| rewind.number > self.last_rewind);
        if caught_up {
            self.ahead_of_ring.swap_remove(at);
        }
        !caught_up
    }

    /// Handles an item that has a number: an event, or the notice in its place.
    fn on_numbered(&mut self, index: StreamIndex, seq: u64, item: RingItem<E>) -> Step<E> {
        if seq <= self.cursor(index) {
            return Step::Continue; // read from the history before
        }
        if let Some(step) = self.catch_up(index, seq - 1, &item) {
            return step;
        }
        self.set_cursor(index, seq);
        Step::Yield(match item {
            RingItem::Event { event, .. } => BusEvent::Event(event),
            RingItem::StreamNotice(notice) => self.undecodable(index, seq, &notice),
        })
    }

    /// Handles the events that the ring has lost, up to `through`. They precede `item`, which is held if they must be read or
    /// reported first.
    fn catch_up(&mut self, index: StreamIndex, through: u64, item: &RingItem<E>) -> Option<Step<E>> {
        let at = self.cursor(index);
        if at >= through {
            return None;
        }
        let step = match (self.on_slow, &self.stream) {
            (OnSlow::Replay, _) => {
                self.behind.push_back((index, through));
                Step::Continue
            }
            (OnSlow::Report, Some(_)) => {
                self.set_cursor(index, through);
                Step::Yield(BusEvent::Lagged(through - at))
            }
            (OnSlow::Report, None) => return None, // counted in `on_lag`
        };
        self.held = Some(item.clone());
        Some(step)
    }

    fn undecodable(&self, index: StreamIndex, seq: u64, notice: &StreamNotice) -> BusEvent<E> {
        let StreamNoticeKind::Undecodable { reason, .. } = &notice.kind else {
            unreachable!("no other notice has a number")
        };
        BusEvent::Undecodable {
            stream_key: self.hub.stream_ref(index).key,
            seq,
            reason: Arc::clone(reason),
        }
    }

    fn on_notice(&mut self, notice: &StreamNotice, item: &RingItem<E>) -> Step<E> {
        let index = notice.index;
        let at = self.cursor(index);
        match notice.kind {
            StreamNoticeKind::Missing { after, through } if through > at => {
                // The store may have events that the ring lost before the notice.
                if let Some(step) = self.catch_up(index, after, item) {
                    return step;
                }
                // Otherwise they are part of a `Lagged` already, and must not be counted twice.
                let is_counted = self.on_slow == OnSlow::Report && self.stream.is_none();
                let at = if is_counted { at.max(after) } else { at };
                self.set_cursor(index, through);
                let stream_key = self.hub.stream_ref(index).key;
                Step::Yield(BusEvent::Gap(Gap {
                    stream_key,
                    seqs: at + 1..=through,
                }))
            }
            StreamNoticeKind::Rewound(rewind) => self.on_rewind(rewind).map_or(Step::Continue, Step::Yield),
            StreamNoticeKind::Lowered { to, delivered } => {
                if self.lower(index, to) {
                    self.held = Some(item.clone()); // the events before the former start come first
                    return Step::Continue;
                }
                self.catch_up(index, delivered, item).unwrap_or(Step::Continue)
            }
            StreamNoticeKind::Missing { .. } | StreamNoticeKind::Undecodable { .. } => Step::Continue,
        }
    }

    /// Handles a rewind. Returns the item to yield if the subscriber has received events that the new history lacks, or may lack.
    fn on_rewind(&mut self, rewind: PastRewind) -> Option<BusEvent<E>> {
        let PastRewind {
            number,
            index,
            resume_after,
            exact,
        } = rewind;
        if number <= self.last_rewind {
            return None;
        }
        self.last_rewind = number;
        self.behind.retain(|&(behind, _)| behind != index);
        let Phase::Started(cursors) = &mut self.phase else {
            return None;
        };
        let delivered = cursors.rewind(&self.hub, index, resume_after);
        // What both histories have and the subscriber has not received is read from the new one.
        self.behind.push_back((index, resume_after));
        let delivered = delivered.filter(|&delivered| delivered > resume_after || (delivered > 0 && !exact))?;
        let stream_key = self.hub.stream_ref(index).key;
        Some(BusEvent::Rewound(Rewound {
            stream_key,
            delivered,
            resume_after: resume_after.min(delivered),
            exact,
        }))
    }

    /// Handles a notification for an event before the start. Returns true if the history has to be read for it.
    fn lower(&mut self, index: StreamIndex, to: u64) -> bool {
        if let Phase::Started(cursors) = &mut self.phase
            && let Some(start) = cursors.lower(&self.hub, index, to)
        {
            self.behind.push_back((index, start));
            return true;
        }
        false
    }

    /// Handles a lag: the ring has overwritten items that this subscription has not received. Replaces the notices among them
    /// from the hub, which remembers rewinds and lowered starts.
    fn on_lag(&mut self, lagged: Lagged) -> Step<E> {
        self.hub.counters.lags.add(1);
        self.handle_rewinds_before_the_ring();
        let own = self.stream.as_ref().map(|stream| stream.index);
        match (self.on_slow, own) {
            (_, Some(index)) => {
                if let Some(to) = self.hub.lowered(index, self.attached_at) {
                    self.lower(index, to);
                }
                // The ring is full, so there is a next item, and every kind of item shows which events are missing before it.
                Step::Continue
            }
            (OnSlow::Report, None) => match self.events_in(lagged) {
                0 => Step::Continue,
                events => Step::Yield(BusEvent::Lagged(events)),
            },
            (OnSlow::Replay, None) => {
                // The ring may hold no later item of a stream, so every stream is compared with what the hub has delivered.
                for (index, through, lowered) in self.hub.delivered(self.attached_at) {
                    if let Some(to) = lowered {
                        self.lower(index, to);
                    }
                    if self.cursor(index) < through {
                        self.behind.push_back((index, through));
                    }
                }
                Step::Continue
            }
        }
    }

    /// Handles the rewinds that the hub remembers and whose notices the ring has not yielded yet.
    fn handle_rewinds_before_the_ring(&mut self) {
        let own = self.stream.as_ref().map(|stream| stream.index);
        for rewind in self.hub.rewinds_after(self.last_rewind, own) {
            let rewound = self.on_rewind(rewind);
            self.rewound_items.extend(rewound);
            self.ahead_of_ring.retain(|&(index, _)| index != rewind.index);
            self.ahead_of_ring.push((rewind.index, Era::of(&rewind)));
        }
    }

    /// Returns the number of events among the items that the ring of all streams has skipped.
    fn events_in(&mut self, lagged: Lagged) -> u64 {
        let skipped = i128::from(lagged.skipped);
        // The hub's figure may include items after these that are overwritten already. Then the next lag counts fewer.
        let surplus = self.hub.surplus_before(lagged.resume_at).max(self.surplus - skipped);
        let events = skipped + surplus - self.surplus;
        self.surplus = surplus;
        u64::try_from(events).unwrap_or(u64::MAX)
    }

    fn read(&mut self, index: StreamIndex, at: u64, through: u64) {
        let (stream, delivered) = self.hub.delivered_stream(index);
        let fetch = self.history.page_after(&stream, at, delivered, self.empty_reads);
        self.history_read = Some(HistoryRead {
            stream,
            through,
            fetch,
            page: None,
        });
    }

    fn poll_history(&mut self, cx: &mut Context<'_>) -> Poll<Step<E>> {
        let read = self.history_read.as_mut().expect("the caller has checked");
        let (index, through) = (read.stream.index, read.through);
        if read.page.is_none() {
            match ready!(read.fetch.poll_unpin(cx)) {
                Some(page) => read.page = Some((page, 0)),
                None => {
                    self.phase = Phase::Ended;
                    return Poll::Ready(Step::Continue);
                }
            }
        }
        let (page, next) = read.page.clone().expect("the page was just fetched");
        // Records of a page are always ready, so a subscriber that reads many has to yield to other tasks.
        ready!(coop::poll_proceed(cx)).made_progress();
        let key = Arc::clone(&read.stream.key);
        let at = self.cursor(index);
        if at >= through {
            self.history_read = None;
            return Poll::Ready(Step::Continue);
        }
        let from = next + page.records[next..].partition_point(|record| record.seq <= at);
        let record = page.records.get(from);
        // The page shows what the store has after a number at or below `at`, so what it lacks is missing in the store.
        let missing_through = record.map_or(page.low_water, |record| record.seq - 1).min(through);
        if missing_through > at {
            self.empty_reads = 0;
            self.set_cursor(index, missing_through);
            match record {
                Some(_) => self.history_read.as_mut().expect("as above").page = Some((page, from)),
                None => self.history_read = None,
            }
            let gap = Gap {
                stream_key: key,
                seqs: at + 1..=missing_through,
            };
            return Poll::Ready(Step::Yield(BusEvent::Gap(gap)));
        }
        let Some(record) = record else {
            self.history_read = None; // what is still missing is in the next page
            if next == 0 {
                self.on_empty_read(index);
            }
            return Poll::Ready(Step::Continue);
        };
        let item = match &record.event {
            Ok(event) => BusEvent::Event(Arc::clone(event)),
            Err(reason) => BusEvent::Undecodable {
                stream_key: key,
                seq: record.seq,
                reason: Arc::clone(reason),
            },
        };
        self.empty_reads = 0;
        self.set_cursor(index, at + 1);
        self.history_read.as_mut().expect("as above").page = Some((page, from + 1));
        Poll::Ready(Step::Yield(item))
    }

    /// Handles a read that found none of the events that are missing. The history was replaced, or a server that lacks them has answered.
    fn on_empty_read(&mut self, index: StreamIndex) {
        let last_rewind = self.last_rewind;
        self.handle_rewinds_before_the_ring();
        if self.last_rewind != last_rewind {
            self.empty_reads = 0; // the next read is of the new history
            return;
        }
        let at = self.cursor(index);
        if self.hub.on_empty_history(index, at) {
            // The next read finds them, or a sweep finds that they are lost, and a rewind follows.
            self.empty_reads = self.empty_reads.saturating_add(1);
        } else {
            // The store has shown them at the start, but the hub has not read them yet. They come through the ring.
            self.behind.retain(|&(behind, _)| behind != index);
            self.empty_reads = 0;
        }
    }
}

//! What a subscription does: from the ring while it keeps up, from the store's history where something is missing.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::FutureExt as _;

use super::OnSlow;
use super::cursors::Cursors;
use crate::bus::gate::Opened;
use crate::bus::history_cache::{HistoryCache, HistoryPage, PageFetch};
use crate::bus::hub::{
    Attached, Era, Hub, Item, PastRewind, StartPosition, StartSignal, StreamNotice, StreamNoticeKind, StreamRef,
    StreamSlot,
};
use crate::bus::{BusError, BusEvent, Gap, Rewound, StreamEvent};
use crate::ring::{Lagged, RecvError, Subscriber, coop};

pub(super) struct StateMachine<E: StreamEvent> {
    hub: Arc<Hub<E>>,
    pages: Arc<HistoryCache<E>>,
    feed: Subscriber<Item<E>>,
    gate: StartSignal,
    stream: Option<StreamRef>,
    on_slow: OnSlow,
    phase: Phase,
    /// Streams in which the ring is ahead, and up to which number.
    behind: VecDeque<(StreamSlot, u64)>,
    reading: Option<Reading<E>>,
    /// An item that waits for what comes before it.
    held: Option<Item<E>>,
    /// The last rewind that is known here, and what is to be said of those whose notices were missed.
    rewinds: u64,
    /// How many more events than items the ring of all streams had, up to here.
    more: i64,
    missed: VecDeque<BusEvent<E>>,
    /// Streams whose rewinds were made up for before the ring has come to them, and the history that counts there.
    ahead: Vec<(StreamSlot, Era)>,
    /// The subscriber says that it has had more than this process knows of.
    claimed: Option<ClaimedStart>,
}

/// A start beyond what this process has delivered. It may have been delivered by another one, or read from the store; so the store
/// is asked whether there is such an event.
#[derive(Clone, Copy)]
struct ClaimedStart {
    /// The last number that the subscriber has had.
    had: u64,
    /// How far this process has delivered.
    live: u64,
}

enum Phase {
    /// Waits for the start; with the number after which the subscriber wants to begin, if it said so.
    Starting {
        gate: Opened<Result<StartPosition, BusError>>,
        after: Option<u64>,
    },
    Started(Cursors),
    Ended,
}

/// A page of the history, on its way or under the finger.
struct Reading<E> {
    stream: StreamRef,
    fetch: PageFetch<E>,
    /// The page that was read, and the next record in it.
    page: Option<(Arc<HistoryPage<E>>, usize)>,
    /// Whether the store has been asked for the same once, and had nothing.
    again: bool,
}

impl<E: StreamEvent> Drop for StateMachine<E> {
    fn drop(&mut self) {
        self.hub
            .detach(self.stream.as_ref().map(|stream| stream.slot), &self.gate);
        self.gate.set(Err(BusError::Closed));
    }
}

/// What an item comes to.
enum Step<E> {
    Yield(BusEvent<E>),
    Continue,
}

impl<E: StreamEvent> StateMachine<E> {
    pub(super) fn new(
        hub: Arc<Hub<E>>,
        pages: Arc<HistoryCache<E>>,
        attached: Attached<E>,
        after: Option<u64>,
        on_slow: OnSlow,
    ) -> Self {
        let Attached {
            feed,
            gate,
            stream,
            rewinds,
            more,
        } = attached;
        let phase = Phase::Starting {
            gate: Arc::clone(&gate).opened(),
            after,
        };
        Self {
            hub,
            pages,
            feed,
            gate,
            stream,
            on_slow,
            phase,
            behind: VecDeque::new(),
            reading: None,
            held: None,
            rewinds,
            more,
            missed: VecDeque::new(),
            ahead: Vec::new(),
            claimed: None,
        }
    }

    pub(super) fn gate(&self) -> &StartSignal {
        &self.gate
    }

    pub(super) fn stream_key(&self) -> Option<&str> {
        self.stream.as_ref().map(|stream| &*stream.key)
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<BusEvent<E>>> {
        loop {
            match &mut self.phase {
                Phase::Ended => return Poll::Ready(None),
                Phase::Starting { gate, after } => {
                    let after = *after;
                    match ready!(gate.poll_unpin(cx)) {
                        Ok(start) => self.begin(&start, after),
                        Err(_) => self.phase = Phase::Ended,
                    }
                    continue;
                }
                Phase::Started(_) => {}
            }
            if let Some(item) = self.missed.pop_front() {
                return Poll::Ready(Some(item));
            }
            if self.reading.is_some() {
                match ready!(self.poll_history(cx)) {
                    Step::Yield(item) => return Poll::Ready(Some(item)),
                    Step::Continue => continue,
                }
            }
            if let Some(&(slot, through)) = self.behind.front() {
                let at = self.cursor(slot);
                if at >= through {
                    self.behind.pop_front();
                } else {
                    self.read_after(slot, at, false);
                }
                continue;
            }
            let step = match self.held.take() {
                Some(item) => self.take(item),
                None => match ready!(self.feed.poll_recv(cx)) {
                    Ok(item) => {
                        self.more += item.events().cast_signed() - 1;
                        self.take(item)
                    }
                    Err(RecvError::Lagged(lagged)) => self.lagged(lagged),
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

    fn cursor(&mut self, slot: StreamSlot) -> u64 {
        match &mut self.phase {
            Phase::Started(cursors) => cursors.get(&self.hub, slot),
            Phase::Starting { .. } | Phase::Ended => unreachable!("only a started subscription has items"),
        }
    }

    fn set_cursor(&mut self, slot: StreamSlot, seq: u64) {
        if let Phase::Started(cursors) = &mut self.phase {
            cursors.set(&self.hub, slot, seq);
        }
    }

    fn begin(&mut self, start: &StartPosition, after: Option<u64>) {
        let (Some(after), &StartPosition::One(live), Some(stream)) = (after, start, &self.stream) else {
            self.phase = Phase::Started(Cursors::at(start));
            return;
        };
        let stream = stream.clone();
        if after > live {
            self.claimed = Some(ClaimedStart { had: after, live });
            self.phase = Phase::Started(Cursors::after(after - 1));
            self.behind.push_back((stream.slot, after));
            return;
        }
        self.phase = Phase::Started(Cursors::after(after));
        self.behind.push_back((stream.slot, live));
    }

    /// An item of the feed.
    fn take(&mut self, item: Item<E>) -> Step<E> {
        if !self.ahead.is_empty() && self.is_of_the_past(&item) {
            return Step::Continue;
        }
        match &item {
            Item::Event { slot, seq, .. } => self.take_seq(*slot, *seq, item),
            Item::StreamNotice(notice) => {
                let notice = Arc::clone(notice);
                match notice.kind {
                    StreamNoticeKind::Undecodable { seq, .. } => self.take_seq(notice.slot, seq, item),
                    _ => self.take_notice(&notice, &item),
                }
            }
        }
    }

    /// Whether an item is of a history that was replaced, and this subscription has gone on to the one after it. The ring catches
    /// up with the notice of the rewind, or with what comes behind it.
    fn is_of_the_past(&mut self, item: &Item<E>) -> bool {
        let (slot, era, rewind) = match item {
            Item::Event { slot, era, .. } => (*slot, *era, None),
            Item::StreamNotice(notice) => match notice.kind {
                StreamNoticeKind::Rewound(rewind) => (notice.slot, notice.era, Some(rewind)),
                _ => (notice.slot, notice.era, None),
            },
        };
        let Some(at) = self.ahead.iter().position(|&(ahead, _)| ahead == slot) else {
            return false;
        };
        let caught_up = self.ahead[at].1 == era || rewind.is_some_and(|rewind| rewind.number > self.rewinds);
        if caught_up {
            self.ahead.swap_remove(at);
        }
        !caught_up
    }

    /// An item that has a number.
    fn take_seq(&mut self, slot: StreamSlot, seq: u64, item: Item<E>) -> Step<E> {
        if seq <= self.cursor(slot) {
            return Step::Continue;
        }
        if let Some(step) = self.catch_up(slot, seq - 1, &item) {
            return step;
        }
        self.set_cursor(slot, seq);
        Step::Yield(match item {
            Item::Event { event, .. } => BusEvent::Event(event),
            Item::StreamNotice(notice) => self.undecodable(slot, seq, &notice),
        })
    }

    /// What the ring has lost up to number `through`, which comes before an item of it.
    fn catch_up(&mut self, slot: StreamSlot, through: u64, item: &Item<E>) -> Option<Step<E>> {
        let at = self.cursor(slot);
        if at >= through {
            return None;
        }
        let step = match (self.on_slow, &self.stream) {
            (OnSlow::Replay, _) => {
                self.behind.push_back((slot, through));
                Step::Continue
            }
            (OnSlow::Report, Some(_)) => {
                self.set_cursor(slot, through);
                Step::Yield(BusEvent::Lagged(through - at))
            }
            (OnSlow::Report, None) => return None, // counted when the ring said so
        };
        self.held = Some(item.clone());
        Some(step)
    }

    fn undecodable(&self, slot: StreamSlot, seq: u64, notice: &StreamNotice) -> BusEvent<E> {
        let StreamNoticeKind::Undecodable { reason, .. } = &notice.kind else {
            unreachable!("the only notice with a number")
        };
        BusEvent::Undecodable {
            stream_key: self.hub.stream_ref(slot).key,
            seq,
            reason: Arc::clone(reason),
        }
    }

    fn take_notice(&mut self, notice: &StreamNotice, item: &Item<E>) -> Step<E> {
        let slot = notice.slot;
        let at = self.cursor(slot);
        match notice.kind {
            StreamNoticeKind::Trimmed { after, through } if through > at => {
                // What the ring has passed over before was counted.
                let is_counted = self.on_slow == OnSlow::Report && self.stream.is_none();
                let at = if is_counted { at.max(after) } else { at };
                self.set_cursor(slot, through);
                let stream_key = self.hub.stream_ref(slot).key;
                Step::Yield(BusEvent::Gap(Gap {
                    stream_key,
                    seqs: at + 1..=through,
                }))
            }
            StreamNoticeKind::Rewound(rewind) => self.rewound(rewind).map_or(Step::Continue, Step::Yield),
            StreamNoticeKind::Lowered { to, delivered } => {
                if self.lower(slot, to) {
                    self.held = Some(item.clone()); // what is before the start comes first
                    return Step::Continue;
                }
                self.catch_up(slot, delivered, item).unwrap_or(Step::Continue)
            }
            StreamNoticeKind::Trimmed { .. } | StreamNoticeKind::Undecodable { .. } => Step::Continue,
        }
    }

    /// The history of a stream was replaced. What is to be said, if the subscriber has had events that are gone.
    fn rewound(&mut self, rewind: PastRewind) -> Option<BusEvent<E>> {
        let PastRewind {
            number,
            slot,
            resume_after,
            exact,
        } = rewind;
        if number <= self.rewinds {
            return None;
        }
        self.rewinds = number;
        self.behind.retain(|&(behind, _)| behind != slot);
        let at = self.cursor(slot);
        if at <= resume_after {
            // What it has had is in both histories, and what it has not is read from the new one.
            self.behind.push_back((slot, resume_after));
            return None;
        }
        self.set_cursor(slot, resume_after);
        let stream_key = self.hub.stream_ref(slot).key;
        Some(BusEvent::Rewound(Rewound {
            stream_key,
            delivered: at,
            resume_after,
            exact,
        }))
    }

    /// A doorbell rang for an event before the start. True if there is something to read for it.
    fn lower(&mut self, slot: StreamSlot, to: u64) -> bool {
        if let Phase::Started(cursors) = &mut self.phase
            && let Some(start) = cursors.lower(&self.hub, slot, to)
        {
            self.behind.push_back((slot, start));
            return true;
        }
        false
    }

    /// The ring has passed over items.
    fn lagged(&mut self, lagged: Lagged) -> Step<E> {
        self.hub.counters.lags.add(1);
        let own = self.stream.as_ref().map(|stream| stream.slot);
        for rewind in self.hub.rewinds_after(self.rewinds, own) {
            let said = self.rewound(rewind);
            self.missed.extend(said);
            self.ahead.retain(|&(slot, _)| slot != rewind.slot);
            self.ahead.push((rewind.slot, Era::of(&rewind)));
        }
        match (self.on_slow, own) {
            (_, Some(slot)) => {
                if let Some(to) = self.hub.lowered(slot) {
                    self.lower(slot, to);
                }
                // The next item shows what is missing, whatever it is, and there is one: the ring is full of them.
                Step::Continue
            }
            (OnSlow::Report, None) => match self.events_in(lagged) {
                0 => Step::Continue,
                events => Step::Yield(BusEvent::Lagged(events)),
            },
            (OnSlow::Replay, None) => {
                // A stream of which nothing more comes would not show it.
                for (slot, through, lowered) in self.hub.delivered() {
                    if let Some(to) = lowered {
                        self.lower(slot, to);
                    }
                    if self.cursor(slot) < through {
                        self.behind.push_back((slot, through));
                    }
                }
                Step::Continue
            }
        }
    }

    /// How many events the items were that the ring of all streams has passed over.
    fn events_in(&mut self, lagged: Lagged) -> u64 {
        let skipped = lagged.skipped.cast_signed();
        // What is counted although it comes after these items is overwritten: the next lag has less then.
        let more = self.hub.more_before(lagged.resume_at).max(self.more - skipped);
        let events = skipped + more - self.more;
        self.more = more;
        events.cast_unsigned()
    }

    fn read_after(&mut self, slot: StreamSlot, at: u64, again: bool) {
        let stream = self.hub.stream_ref(slot);
        let fetch = self.pages.after(&stream, at);
        self.reading = Some(Reading {
            stream,
            fetch,
            page: None,
            again,
        });
    }

    fn poll_history(&mut self, cx: &mut Context<'_>) -> Poll<Step<E>> {
        let reading = self.reading.as_mut().expect("the caller has looked");
        let slot = reading.stream.slot;
        if reading.page.is_none() {
            match ready!(reading.fetch.poll_unpin(cx)) {
                Some(page) => reading.page = Some((page, 0)),
                None => {
                    self.phase = Phase::Ended;
                    return Poll::Ready(Step::Continue);
                }
            }
        }
        let (page, next) = reading.page.clone().expect("it has been read");
        // A page is in memory, so it could be read without end.
        ready!(coop::poll_proceed(cx)).made_progress();
        let again = reading.again;
        let key = Arc::clone(&reading.stream.key);
        if let Some(claim) = self.claimed {
            return Poll::Ready(self.judge(claim, &page, slot, key, again));
        }
        let at = self.cursor(slot);
        if page.low_water > at {
            self.set_cursor(slot, page.low_water);
            self.reading = None;
            let gap = Gap {
                stream_key: key,
                seqs: at + 1..=page.low_water,
            };
            return Poll::Ready(Step::Yield(BusEvent::Gap(gap)));
        }
        let from = next + page.records[next..].partition_point(|past| past.seq <= at);
        let Some(past) = page.records.get(from) else {
            self.page_is_done(slot, at, from > 0 && next > 0, again);
            return Poll::Ready(Step::Continue);
        };
        if past.seq != at + 1 {
            self.page_is_done(slot, at, false, again);
            return Poll::Ready(Step::Continue);
        }
        let item = match &past.event {
            Ok(event) => BusEvent::Event(Arc::clone(event)),
            Err(reason) => BusEvent::Undecodable {
                stream_key: key,
                seq: past.seq,
                reason: Arc::clone(reason),
            },
        };
        self.set_cursor(slot, at + 1);
        self.reading.as_mut().expect("as above").page = Some((page, from + 1));
        Poll::Ready(Step::Yield(item))
    }

    /// Whether the store has, or had, the event that the subscriber says it has had.
    fn judge(
        &mut self,
        claim: ClaimedStart,
        page: &HistoryPage<E>,
        slot: StreamSlot,
        stream_key: Arc<str>,
        again: bool,
    ) -> Step<E> {
        let ClaimedStart { had, live } = claim;
        if page.low_water >= had || page.records.iter().any(|past| past.seq == had) {
            self.claimed = None;
            self.set_cursor(slot, had);
            return Step::Continue; // with the page, which may have what comes next
        }
        if !again {
            // It may have been read before the event was there.
            self.read_after(slot, had - 1, true);
            return Step::Continue;
        }
        self.claimed = None;
        self.reading = None;
        self.behind.clear();
        self.set_cursor(slot, live);
        Step::Yield(BusEvent::Rewound(Rewound {
            stream_key,
            delivered: had,
            resume_after: live,
            exact: false,
        }))
    }

    /// Nothing more in the page. If it had nothing at all for us the store does not have what the ring has shown; that is so only
    /// while its history is being replaced, and then a notice is on its way.
    fn page_is_done(&mut self, slot: StreamSlot, at: u64, had_something: bool, again: bool) {
        self.reading = None;
        if had_something {
            return; // what is still missing is in the next page
        }
        if again {
            self.behind.retain(|&(behind, _)| behind != slot);
            self.held = None;
        } else {
            self.read_after(slot, at, true);
        }
    }
}

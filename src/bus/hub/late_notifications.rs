//! Late notifications: of events at or below the number at which a subscription started.
//!
//! The appender may have sent such a notification after the subscription was ready, so its event is delivered, but only if it is
//! recent: any client of the database can send a notification of a stream's first event. The store decides what is recent.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::stream::{Stream, StreamIndex};
use super::stream_table::StreamTable;
use super::{Hub, StreamNoticeKind};
use crate::store::{RecentRange, Watermark};

/// Events that were visible this long before a subscription's start are not recent.
const WINDOW: Duration = Duration::from_secs(10);

/// How many events before a subscription's start may be recent.
const MAX_LATE_EVENTS: u64 = 256;

/// The minimum interval between two watermarks that are kept.
#[cfg(feature = "postgres")]
const WATERMARK_INTERVAL: Duration = Duration::from_millis(500);

/// A start of subscriptions.
#[derive(Clone, Debug)]
pub(super) struct StartTime {
    /// By the table's clock.
    pub(super) tick: u64,
    at: Instant,
    /// What the store showed at least [`WINDOW`] before, if it is known.
    watermark: Option<Watermark>,
}

/// What sweeps have found the store to show. Holds those of the last [`WINDOW`], and the one before.
#[derive(Debug, Default)]
pub(super) struct Watermarks(VecDeque<(Instant, Watermark)>);

impl Watermarks {
    /// Adds a watermark that the store has just returned.
    #[cfg(feature = "postgres")]
    fn push(&mut self, watermark: Watermark) {
        let now = Instant::now();
        if self.0.back().is_some_and(|(at, _)| now - *at < WATERMARK_INTERVAL) {
            return;
        }
        self.0.push_back((now, watermark));
        while self.0.get(1).is_some_and(|(at, _)| now - *at >= WINDOW) {
            self.0.pop_front();
        }
    }

    /// Returns the newest that is at least [`WINDOW`] older than `at`.
    fn before(&self, at: Instant) -> Option<Watermark> {
        let is_older = |(taken, _): &&(Instant, Watermark)| at.saturating_duration_since(*taken) >= WINDOW;
        self.0
            .iter()
            .rev()
            .find(is_older)
            .map(|(_, watermark)| watermark.clone())
    }
}

/// A question to the store: which events before a stream's start are recent.
#[derive(Debug)]
pub(crate) struct LateCheck {
    index: StreamIndex,
    version: u64,
    /// The start that it is asked for.
    tick: u64,
    pub(crate) range: RecentRange,
}

impl<E: Send + Sync + 'static> Hub<E> {
    /// Reports a watermark that the store has just returned.
    #[cfg(feature = "postgres")]
    pub(crate) fn on_watermark(&self, watermark: Watermark) {
        self.table.lock().watermarks.push(watermark);
    }

    /// Handles a notification for number `first`, at or below the cursor. A subscription that has started since the last delivery
    /// has not had that event. Returns whether a check has to decide; until then, nothing of the stream is delivered.
    pub(super) fn on_late_notification(&self, table: &mut StreamTable<E>, index: StreamIndex, first: u64) -> bool {
        let tick = table.latest_start(index).map_or(0, |start| start.tick);
        let stream = table.stream_mut(index);
        let Some(cursor) = stream.cursor else { return false };
        if tick <= stream.delivered_at || first > cursor {
            return false;
        }
        match (stream.recent_from, stream.late) {
            (Some((of, recent)), _) if of == tick => {
                self.lower(table, index, first.max(recent));
                false
            }
            (_, Some(late)) => {
                stream.late = Some(late.min(first));
                true
            }
            (_, None) => {
                stream.late = Some(first);
                table.late.push_back(index);
                true
            }
        }
    }

    /// Takes at most `max` checks. The caller asks the store and [decides](Self::decide_late), or puts them back.
    pub(crate) fn take_late_checks(&self, max: usize) -> Vec<LateCheck> {
        let mut table = self.table.lock();
        let mut checks = Vec::new();
        while checks.len() < max {
            let Some(index) = table.late.pop_front() else { break };
            match table.late_check(index) {
                Some(check) => checks.push(check),
                None => table.forget_late(index),
            }
        }
        checks
    }

    /// Reschedules a check that the store did not answer.
    #[cfg(feature = "postgres")]
    pub(crate) fn put_back_late(&self, check: &LateCheck) {
        let mut table = self.table.lock();
        if table.current(check.index, check.version).is_some() {
            table.late.push_back(check.index);
        }
    }

    /// Handles the late notification of a stream with the store's answer: the lowest number of the recent events, if there are any.
    pub(crate) fn decide_late(&self, check: &LateCheck, recent: Option<u64>) {
        let mut table = self.table.lock();
        let Some(stream) = table.current(check.index, check.version) else {
            return;
        };
        // Subscriptions that have started since get the same answer: another check might never end if more and more start.
        let (Some(first), Some(cursor)) = (stream.late.take(), stream.cursor) else {
            return;
        };
        let recent = recent.unwrap_or(cursor + 1);
        stream.recent_from = Some((check.tick, recent));
        let is_wanted = stream.wanted > cursor;
        if check.tick > stream.delivered_at {
            self.lower(&mut table, check.index, first.max(recent));
        }
        if is_wanted {
            table.queue(check.index);
        }
        drop(table);
        self.publish_queue.flush();
    }

    /// Delivers the events from `first` on to subscriptions that started later.
    fn lower(&self, table: &mut StreamTable<E>, index: StreamIndex, first: u64) {
        let Some(delivered) = table.stream(index).cursor.filter(|&cursor| first <= cursor) else {
            return;
        };
        let to = first - 1;
        let tick = table.tick();
        let stream = table.stream_mut(index);
        stream.delivered_at = tick;
        stream.lowerings.push(tick, to);
        let era = stream.era;
        let item = StreamNoticeKind::Lowered { to, delivered }.on(index, era);
        self.push(table, index, vec![item]);
    }
}

impl<E: Send + Sync + 'static> StreamTable<E> {
    /// A start of subscriptions, now.
    pub(super) fn start_now(&mut self) -> StartTime {
        let at = Instant::now();
        StartTime {
            tick: self.tick(),
            at,
            watermark: self.watermarks.before(at),
        }
    }

    /// What to ask the store for a stream's late notification, or `None` if no subscription that has started is left.
    fn late_check(&self, index: StreamIndex) -> Option<LateCheck> {
        let start = self.latest_start(index)?;
        let stream = self.stream(index);
        let cursor = stream.cursor?;
        Some(LateCheck {
            index,
            version: stream.version,
            tick: start.tick,
            range: RecentRange {
                stream_key: Arc::clone(&stream.key),
                after: cursor.saturating_sub(MAX_LATE_EVENTS),
                through: cursor,
                watermark: start.watermark.clone(),
                max_age: start.at.elapsed().saturating_add(WINDOW),
            },
        })
    }

    /// Forgets a stream's late notification, which concerns no subscription. What it held back is read.
    pub(super) fn forget_late(&mut self, index: StreamIndex) {
        self.late.retain(|&late| late != index);
        let stream = self.stream_mut(index);
        stream.late = None;
        if stream.read_after().is_some() {
            self.queue(index);
        }
    }

    /// When a subscription that includes the stream last started.
    fn latest_start(&self, index: StreamIndex) -> Option<&StartTime> {
        let of_all = self.all.started_at.as_ref().filter(|_| self.all.subscriptions > 0);
        self.streams[index.as_usize()]
            .as_ref()
            .and_then(|stream| stream.started_at.as_ref())
            .into_iter()
            .chain(of_all)
            .max_by_key(|start| start.tick)
    }
}

impl<E: Send + Sync + 'static> Stream<E> {
    /// After which number the next read starts, if there is anything to read, and no late notification or doubt to settle first.
    pub(super) fn read_after(&self) -> Option<u64> {
        let cursor = self.cursor.filter(|_| self.late.is_none() && !self.is_in_doubt())?;
        (self.wanted > cursor).then_some(cursor)
    }
}

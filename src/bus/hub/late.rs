//! Late notifications: of events at or below the number at which a subscription started.
//!
//! The appender may have sent such a notification after the subscription was ready, so its event is delivered, but only if it was
//! appended shortly before: any client of the database can send a notification of a stream's first event.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use super::stream::{Stream, StreamSlot};
use super::stream_table::StreamTable;
use super::{Hub, StreamNoticeKind};
use crate::store::Record;

/// How long before a subscription's start an event may have been appended.
const WINDOW: Duration = Duration::from_secs(10);

/// How many events before a subscription's start are looked at.
const MAX_LATE_EVENTS: u64 = 256;

/// A late notification that waits for a read of the events before the cursor.
#[derive(Clone, Copy, Debug)]
pub(super) struct LateNotification {
    /// The lowest number that was named.
    first: u64,
    /// Where the read starts.
    pub(super) after: u64,
}

/// A start of subscriptions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Start {
    /// By the table's clock.
    pub(super) tick: u64,
    /// By the system clock.
    at: SystemTime,
}

impl Start {
    pub(super) const NONE: Self = Self {
        tick: 0,
        at: SystemTime::UNIX_EPOCH,
    };

    pub(super) fn now(tick: u64) -> Self {
        Self {
            tick,
            at: SystemTime::now(),
        }
    }
}

/// How far the server's clock is ahead of the system clock, in milliseconds.
#[derive(Debug, Default)]
pub(super) struct ClockOffset(AtomicI64);

impl ClockOffset {
    fn server_time(&self, system_time: SystemTime) -> SystemTime {
        let offset = self.0.load(Ordering::Relaxed); // a value of its own, which orders nothing
        let ahead = Duration::from_millis(offset.unsigned_abs());
        let server_time = if offset < 0 {
            system_time.checked_sub(ahead)
        } else {
            system_time.checked_add(ahead)
        };
        server_time.unwrap_or(system_time)
    }
}

impl<E: Send + Sync + 'static> Hub<E> {
    /// Reports the time by the server's clock.
    #[cfg(feature = "postgres")]
    pub(crate) fn set_server_time(&self, server_time: SystemTime) {
        let offset = match server_time.duration_since(SystemTime::now()) {
            Ok(ahead) => i64::try_from(ahead.as_millis()).unwrap_or(0),
            Err(behind) => -i64::try_from(behind.duration().as_millis()).unwrap_or(0),
        };
        self.clock_offset.0.store(offset, Ordering::Relaxed); // a value of its own, which orders nothing
    }

    /// Handles a notification for number `first`, at or below the cursor. A subscription that has started since the last delivery
    /// has not had that event. Returns whether a read has to decide.
    pub(super) fn on_late_notification(&self, table: &mut StreamTable<E>, slot: StreamSlot, first: u64) -> bool {
        let start = table.latest_start(slot);
        let stream = table.stream_mut(slot);
        let Some(cursor) = stream.cursor else { return false };
        if start.tick <= stream.delivered_at || first > cursor {
            return false;
        }
        match stream.recent_from {
            Some((tick, recent)) if tick == start.tick => {
                self.lower(table, slot, first.max(recent));
                false
            }
            _ => {
                let after = cursor.saturating_sub(MAX_LATE_EVENTS);
                let late = stream.late.get_or_insert(LateNotification { first, after });
                late.first = late.first.min(first);
                table.queue(slot);
                true
            }
        }
    }

    /// Handles the late notification of a stream with the page that was read for it. Returns whether the page decides.
    pub(super) fn decide_late(
        &self,
        table: &mut StreamTable<E>,
        slot: StreamSlot,
        records: &[Record<E>],
        limit: usize,
    ) -> bool {
        let start = table.latest_start(slot);
        let stream = table.stream_mut(slot);
        let (Some(late), Some(cursor)) = (stream.late, stream.cursor) else {
            return true;
        };
        let earliest = self.clock_offset.server_time(start.at) - WINDOW;
        let is_recent = |appended_at: Option<SystemTime>| appended_at.is_none_or(|at| at >= earliest);
        let before_start = records.iter().filter(|record| record.seq <= cursor);
        let recent = before_start.clone().find(|record| is_recent(record.appended_at));
        let last = records.last().map_or(cursor, |record| record.seq);
        if recent.is_none() && records.len() >= limit && last < cursor {
            stream.late = Some(LateNotification { after: last, ..late });
            return false;
        }
        let recent = recent.map_or(cursor + 1, |record| record.seq);
        stream.late = None;
        stream.recent_from = Some((start.tick, recent));
        if start.tick > stream.delivered_at {
            self.lower(table, slot, late.first.max(recent));
        }
        true
    }

    /// Delivers the events from `first` on to subscriptions that started later.
    fn lower(&self, table: &mut StreamTable<E>, slot: StreamSlot, first: u64) {
        let Some(delivered) = table.stream(slot).cursor.filter(|&cursor| first <= cursor) else {
            return;
        };
        let to = first - 1;
        let tick = table.tick();
        let stream = table.stream_mut(slot);
        stream.delivered_at = tick;
        stream.lowered = Some(to);
        let era = stream.era;
        let item = StreamNoticeKind::Lowered { to, delivered }.on(slot, era);
        self.push(table, slot, vec![item]);
    }
}

impl<E: Send + Sync + 'static> StreamTable<E> {
    /// When a subscription that includes the stream last started.
    fn latest_start(&self, slot: StreamSlot) -> Start {
        let of_all = if self.all.subscriptions > 0 {
            self.all.started_at
        } else {
            Start::NONE
        };
        self.stream(slot).started_at.max(of_all)
    }
}

impl<E: Send + Sync + 'static> Stream<E> {
    /// After which number the next read starts, if there is anything to read.
    pub(super) fn read_after(&self) -> Option<u64> {
        let cursor = self.cursor?;
        match self.late {
            Some(late) => Some(late.after),
            None => (self.wanted > cursor).then_some(cursor),
        }
    }
}

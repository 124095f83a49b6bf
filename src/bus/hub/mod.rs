//! Decides what is delivered to which subscription, without any I/O. The hub knows the streams that have subscriptions in this
//! process, how far each is delivered, which numbers notifications have named, and the rings through which events reach the
//! subscriptions.
//!
//! The bus's reader asks the hub what to read ([`Hub::take_reads`]), reads it from the store, and passes the result back
//! ([`Hub::deliver`]). The hub accepts an event only if it is the next of its stream. Thus events from notifications, sweeps and
//! local appends are delivered once and in order, however often and in whatever order they arrive.

mod attach;
mod collect;
mod continuity;
mod delivery;
mod lag_accounting;
mod late_notifications;
mod lowerings;
mod notifications;
mod publish_queue;
mod recent_ids;
mod rewind_log;
mod ring_item;
mod start;
mod start_signal;
mod stream;
mod stream_table;

// Only the distributed bus needs these: its store can be unreachable, miss notifications, and be replaced by another history.
#[cfg(feature = "postgres")]
mod comparison;
#[cfg(feature = "postgres")]
mod pending_reads;
#[cfg(feature = "postgres")]
mod rewind;
#[cfg(feature = "postgres")]
mod sweep;

use std::sync::Arc;

use parking_lot::Mutex;

use self::publish_queue::PublishQueue;
use self::stream_table::StreamTable;
use crate::bus::stats::Counters;

pub(crate) use attach::Attached;
#[cfg(feature = "postgres")]
pub(crate) use comparison::{Comparison, StoredHistory, Verdict};
#[cfg(feature = "postgres")]
pub(crate) use delivery::PendingRead;
#[cfg(feature = "postgres")]
pub(crate) use late_notifications::LateCheck;
#[cfg(feature = "postgres")]
pub(crate) use notifications::NotificationOutcome;
#[cfg(feature = "postgres")]
pub(crate) use recent_ids::MAX_REMEMBERED;
pub(crate) use rewind_log::PastRewind;
pub(crate) use ring_item::{Era, RingItem, StreamNotice, StreamNoticeKind};
pub(crate) use start::Started;
pub(crate) use start_signal::{StartPosition, StartSignal, StartWait};
pub(crate) use stream::{StreamIndex, StreamRef};
pub(crate) use stream_table::UNSET;

/// The bounds of the hub.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HubSettings {
    /// The number of events that the ring of one stream holds for its subscriptions.
    pub(crate) stream_capacity: usize,
    /// The number of events that the ring for the subscriptions to all streams holds.
    pub(crate) all_capacity: usize,
    /// The maximum number of unknown streams whose notifications may wait for a read. Beyond that, the hub requests a sweep.
    pub(crate) pending_streams: usize,
}

pub(crate) struct Hub<E: Send + Sync + 'static> {
    table: Mutex<StreamTable<E>>,
    publish_queue: PublishQueue<E>,
    settings: HubSettings,
    pub(crate) counters: Arc<Counters>,
    /// Wakes the tasks that do the work.
    wakeup: Box<dyn Fn(Work) + Send + Sync>,
}

/// What the tasks of the bus have to do for the hub. They are woken for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    /// To read streams, or what subscriptions need for their start.
    Read,
    /// To sweep.
    Sweep,
}

impl<E: Send + Sync + 'static> Hub<E> {
    pub(crate) fn new(settings: HubSettings, counters: Arc<Counters>, wakeup: Box<dyn Fn(Work) + Send + Sync>) -> Self {
        Self {
            table: Mutex::new(StreamTable::new()),
            publish_queue: PublishQueue::default(),
            settings,
            counters,
            wakeup,
        }
    }

    /// Returns the number of subscriptions.
    pub(crate) fn subscriptions(&self) -> usize {
        let table = self.table.lock();
        let streams = table.streams.iter().flatten();
        table.all.subscriptions + streams.map(|stream| stream.subscriptions).sum::<usize>()
    }

    /// Returns the number of streams in the table.
    pub(crate) fn streams(&self) -> usize {
        self.table.lock().by_key.len()
    }
}

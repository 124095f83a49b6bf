//! Handles notifications.
//!
//! Every client of the database can send notifications, so a notification only causes a read, and only events that the store
//! returns are delivered. A stream never has more than one read at a time.

use std::ops::RangeInclusive;
use std::sync::Arc;

use super::stream_table::{Baseline, StreamTable};
use super::{Hub, Work};

/// The effect of a notification.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NotificationOutcome {
    /// Its events will be read.
    WillRead,
    /// The next sweep will find its events.
    WillSweep,
    /// Its events are delivered, or their read or a sweep was scheduled before.
    AlreadyKnown,
    /// Its stream has no subscriptions in this process.
    NotSubscribed,
}

impl<E: Send + Sync + 'static> Hub<E> {
    /// Handles a notification for the events `seqs` of a stream.
    pub(crate) fn on_notification(&self, key: &str, seqs: RangeInclusive<u64>) -> NotificationOutcome {
        let mut table = self.table.lock();
        let outcome = self.on_notification_locked(&mut table, key, seqs);
        drop(table);
        match outcome {
            NotificationOutcome::WillRead => (self.wakeup)(Work::Read),
            NotificationOutcome::WillSweep => (self.wakeup)(Work::Sweep),
            NotificationOutcome::AlreadyKnown | NotificationOutcome::NotSubscribed => {}
        }
        self.publish_queue.flush();
        outcome
    }

    fn on_notification_locked(
        &self,
        table: &mut StreamTable<E>,
        key: &str,
        seqs: RangeInclusive<u64>,
    ) -> NotificationOutcome {
        let index = match table.by_key.get(key) {
            Some(&index) => index,
            None if table.all.subscriptions == 0 => return NotificationOutcome::NotSubscribed,
            None => match &mut table.all.baseline {
                Baseline::Complete(untracked) if untracked.contains_key(key) => {
                    let (key, head) = untracked.remove_entry(key).expect("the key was just found");
                    table.insert_for_all(key, head)
                }
                _ => return self.on_unknown_stream(table, key, seqs),
            },
        };
        let stream = table.stream_mut(index);
        stream.wanted = stream.wanted.max(*seqs.end());
        let Some(cursor) = stream.cursor else {
            let first = stream.first_notified.unwrap_or(u64::MAX);
            stream.first_notified = Some(first.min(*seqs.start()));
            return NotificationOutcome::WillRead;
        };
        if *seqs.start() <= cursor && self.on_late_notification(table, index, *seqs.start()) {
            return NotificationOutcome::WillRead;
        }
        if *seqs.end() <= cursor {
            return NotificationOutcome::AlreadyKnown;
        }
        table.queue(index);
        NotificationOutcome::WillRead
    }

    fn on_unknown_stream(
        &self,
        table: &mut StreamTable<E>,
        key: &str,
        seqs: RangeInclusive<u64>,
    ) -> NotificationOutcome {
        if let Some(known) = table.unverified.get_mut(key) {
            let merged = *known.start().min(seqs.start())..=*known.end().max(seqs.end());
            let outcome = if merged == *known {
                NotificationOutcome::AlreadyKnown
            } else {
                NotificationOutcome::WillRead
            };
            *known = merged;
            return outcome;
        }
        if table.unverified.len() < self.settings.pending_streams {
            table.unverified.insert(Arc::from(key), seqs);
            return NotificationOutcome::WillRead;
        }
        // Memory is bounded: the sweep finds what is not remembered here.
        if std::mem::replace(&mut table.sweep_requested, true) {
            NotificationOutcome::AlreadyKnown
        } else {
            NotificationOutcome::WillSweep
        }
    }

    /// Requests a sweep before the next one is due. Any client of the database can cause any number of requests, so they cost nothing
    /// while one is pending, and the sweeper lets at most one sweep per interval come early.
    pub(crate) fn request_sweep(&self) {
        let was_requested = std::mem::replace(&mut self.table.lock().sweep_requested, true);
        if !was_requested {
            (self.wakeup)(Work::Sweep);
        }
    }
}

//! Reads that are due, or failed and are due again.

use super::Hub;
use super::delivery::{PendingRead, Target};
use super::stream::StreamIndex;
use crate::bus::StreamEvent;

impl<E: StreamEvent> Hub<E> {
    /// Returns `true` if events that were named still have to be read for a subscription, or for one that is about to start.
    pub(crate) fn has_pending_reads(&self) -> bool {
        let table = self.table.lock();
        let unstarted = |&index: &StreamIndex| table.stream(index).first_notified.is_some();
        !table.queue.is_empty()
            || !table.late.is_empty()
            || !table.unverified.is_empty()
            || table.unstarted.iter().any(unstarted)
    }

    /// Reschedules reads that the store did not answer.
    pub(crate) fn put_back(&self, reads: Vec<PendingRead>) {
        let mut table = self.table.lock();
        for PendingRead {
            key,
            after,
            target,
            through,
            is_confirmed: _, // another server may answer the next read
        } in reads
        {
            match target {
                Target::Stream { index, version, .. } => {
                    let Some(stream) = table.current(index, version) else {
                        continue;
                    };
                    stream.wanted = stream.wanted.max(through);
                    table.queue(index);
                }
                Target::Unverified if table.all.subscriptions > 0 => {
                    let seqs = table.unverified.entry(key).or_insert(after + 1..=through);
                    *seqs = (after + 1).min(*seqs.start())..=through.max(*seqs.end());
                }
                Target::Unverified => {}
            }
        }
    }
}

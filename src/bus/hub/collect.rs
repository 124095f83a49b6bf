//! Removes streams without subscriptions, and closes the hub.

use super::Hub;
use super::start_signal::StartSignal;
use crate::bus::BusError;
use crate::event::foreign;

impl<E: Send + Sync + 'static> Hub<E> {
    /// [Collects](Self::collect) if the table has doubled since the last collection. For a bus without a timer.
    pub(crate) fn collect_if_grown(&self) {
        let mut table = self.table.lock();
        if table.by_key.len() < table.collect_at {
            return;
        }
        drop(table);
        self.collect();
        table = self.table.lock();
        table.collect_at = 2 * table.by_key.len().max(32);
    }

    /// Removes streams that have no subscriptions. This is not done when the last subscription is dropped, since many callers
    /// subscribe again soon. Returns true if there are no subscriptions to all streams, in which case the next one needs a new
    /// baseline.
    pub(crate) fn collect(&self) -> bool {
        let mut feeds = foreign::DropLater::new(); // with the events in the rings
        let mut table = self.table.lock();
        if table.all.subscriptions > 0 {
            // Subscriptions to all refer to streams by index, so only the rings of single streams can be removed.
            for stream in table
                .streams
                .iter_mut()
                .flatten()
                .filter(|stream| stream.subscriptions == 0)
            {
                feeds.0.extend(stream.feed.take());
            }
            return false;
        }
        feeds.0.extend(table.all.feed.take());
        for index in 0..table.streams.len() {
            let Some(mut stream) = table.streams[index].take_if(|stream| stream.subscriptions == 0) else {
                continue;
            };
            feeds.0.extend(stream.feed.take());
            let index = table
                .by_key
                .remove(&stream.key)
                .expect("every stream is found by its key");
            if stream.queued {
                table.queue.retain(|&queued| queued != index);
            }
            if stream.late.is_some() {
                table.late.retain(|&late| late != index);
            }
            table.free.push(index);
        }
        table.retain_unstarted();
        true
    }

    /// Ends all subscriptions, after the items in their rings.
    pub(crate) fn close(&self) {
        let (signals, feeds) = {
            let mut table = self.table.lock();
            table.closed = true;
            let mut signals = std::mem::take(&mut table.all.starting);
            let mut feeds = foreign::DropLater::new();
            feeds.0.extend(table.all.feed.take());
            for stream in table.streams.iter_mut().flatten() {
                signals.append(&mut stream.starting);
                feeds.0.extend(stream.feed.take());
            }
            table.queue.clear();
            (signals, feeds)
        };
        self.publish_queue.flush();
        drop(feeds); // this wakes the subscribers
        StartSignal::set_all(signals.into_iter().map(|signal| (signal, Err(BusError::Closed))));
    }
}

//! Access to private parsers and models for the fuzz targets (`fuzz/`). Not part of the public API: it exists with `--cfg fuzzing`,
//! and in unit tests so that it keeps compiling.

/// Random schedules of a bus, run against a model of its store.
pub mod schedule {
    pub use crate::bus::tests::{NotificationFate, Op, run, without_sweeps};
}

pub use self::wrappers::*;

mod wrappers {
    use std::ops::RangeInclusive;
    use std::sync::Arc;

    use crate::bus::BusStats;
    use crate::bus::distributed::notify_queue;
    use crate::bus::payload;
    use crate::bus::stats::Counters;
    use crate::listen::channel_name;
    use crate::listen::{ConfigError, InvalidChannel, InvalidPayload};
    use crate::pg::{config, quote};
    use crate::store::postgres::jsonb_text;

    /// The payload that requests a sweep.
    pub const SWEEP_REQUEST: &str = payload::SWEEP_REQUEST;

    /// The ranges in a notification payload, and the number of parts that are not ranges.
    pub fn parse_payload(payload: &str) -> (Vec<(&str, RangeInclusive<u64>)>, usize) {
        let (ranges, invalid) = payload::parse(payload);
        let ranges = ranges.into_iter().map(|range| (range.stream_key, range.seqs));
        (ranges.collect(), invalid)
    }

    /// Notification payloads that carry all of `ranges`.
    pub fn pack_payloads<'a>(ranges: impl IntoIterator<Item = (&'a str, RangeInclusive<u64>)>) -> Vec<String> {
        payload::pack(ranges)
    }

    /// The queue of notifications to be sent.
    pub struct NotifyQueue {
        queue: notify_queue::NotifyQueue,
        counters: Arc<Counters>,
    }

    /// The notifications taken from the queue together.
    pub struct NotifyBatch(notify_queue::NotifyBatch);

    impl NotifyQueue {
        /// An empty queue, which requests a sweep when more than `max_streams` streams are queued.
        pub fn new(max_streams: usize) -> Self {
            let counters = Arc::<Counters>::default();
            Self {
                queue: notify_queue::NotifyQueue::new(max_streams, Arc::clone(&counters)),
                counters,
            }
        }

        /// Queues a notification for events of a stream.
        pub fn push(&self, stream_key: &str, seqs: RangeInclusive<u64>) {
            self.queue.push(stream_key, seqs);
        }

        /// Takes everything that is queued.
        pub fn take(&self) -> NotifyBatch {
            NotifyBatch(self.queue.take())
        }

        /// Queues a batch again that could not be sent.
        pub fn put_back(&self, batch: NotifyBatch) {
            self.queue.put_back(batch.0);
        }

        /// The counters of the queue.
        pub fn stats(&self) -> BusStats {
            self.counters.read()
        }
    }

    impl NotifyBatch {
        /// Whether there is nothing to send.
        pub fn is_empty(&self) -> bool {
            self.0.is_empty()
        }

        /// The payloads to send.
        pub fn payloads(&self) -> Vec<String> {
            self.0.payloads()
        }
    }

    /// Whether Postgres can listen on a channel of this name.
    pub fn check_channel_name(name: &str) -> Result<(), InvalidChannel> {
        channel_name::check_channel(name)
    }

    /// Whether a notification can carry the payload.
    pub fn check_payload(payload: &str) -> Result<(), InvalidPayload> {
        channel_name::check_payload(payload)
    }

    /// The SQL identifier for `name`.
    pub fn quote_identifier(name: &str) -> String {
        let mut sql = String::new();
        quote::push_identifier(&mut sql, name);
        sql
    }

    /// The SQL literal for `text`.
    pub fn quote_literal(text: &str) -> String {
        let mut sql = String::new();
        quote::push_literal(&mut sql, text);
        sql
    }

    /// Whether JSON escapes a null character.
    pub fn escapes_nul(json: &str) -> bool {
        jsonb_text::escapes_nul(json)
    }

    /// The settings in a connection string, and whether they verify the server's certificate. Reads no certificate file, since a
    /// fuzzer would name any.
    pub fn parse_connection_string(text: &str) -> Result<(tokio_postgres::Config, bool), ConfigError> {
        config::parse_without_files(text)
    }
}

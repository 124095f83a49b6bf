//! Appending to a memory store. Code of the event type runs only while the lock is not held.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use super::MemoryStore;
use crate::event::{StreamEvent, foreign};
use crate::store::record_metadata::RecordMetadata;
use crate::store::{StoreError, check_stream_key};

impl<E: StreamEvent> MemoryStore<E> {
    pub(super) fn append_event(&self, event: &E) -> Result<RecordMetadata, StoreError> {
        let (stream_key, given_seq, stored) = (event.stream_key(), event.seq(), Arc::new(event.clone()));
        check_stream_key(stream_key)?;
        let mut removed = foreign::DropLater::new();
        let mut streams = self.inner.streams.lock();
        check_seq(stream_key, streams.high_water(stream_key), given_seq)?;
        let appended_at = SystemTime::now(); // under the lock, so that it follows the numbers
        let previous = streams.head(stream_key).1;
        let seq = streams.append(stream_key, stored, appended_at, &mut removed.0);
        Ok(self.metadata(seq, streams.last_position(), previous, appended_at))
    }

    /// Appends all events or none.
    pub(super) fn append_events(&self, events: &[E]) -> Result<Vec<RecordMetadata>, StoreError> {
        let mut batch = Vec::with_capacity(events.len());
        for event in events {
            let stream_key = event.stream_key();
            check_stream_key(stream_key)?;
            batch.push((stream_key, event.seq(), Arc::new(event.clone())));
        }
        let mut removed = foreign::DropLater::new();
        let mut metadata = Vec::with_capacity(batch.len());
        let mut streams = self.inner.streams.lock();
        let mut high_waters = HashMap::new();
        for &(stream_key, given_seq, _) in &batch {
            let high_water = high_waters
                .entry(stream_key)
                .or_insert_with(|| streams.high_water(stream_key));
            check_seq(stream_key, *high_water, given_seq)?;
            *high_water += 1;
        }
        let appended_at = SystemTime::now(); // as above
        for (stream_key, _, stored) in batch {
            let previous = streams.head(stream_key).1;
            let seq = streams.append(stream_key, stored, appended_at, &mut removed.0);
            metadata.push(self.metadata(seq, streams.last_position(), previous, appended_at));
        }
        Ok(metadata)
    }

    fn metadata(&self, seq: u64, position: u64, previous: Option<u64>, appended_at: SystemTime) -> RecordMetadata {
        RecordMetadata {
            seq,
            id: Some(self.inner.id.event_id(position)),
            previous_id: previous.map(|previous| self.inner.id.event_id(previous)),
            appended_at: Some(appended_at),
        }
    }
}

/// Checks that an event with number `given_seq` may follow `high_water`.
fn check_seq(stream_key: &str, high_water: u64, given_seq: u64) -> Result<(), StoreError> {
    let expected = high_water + 1;
    if given_seq == 0 || given_seq == expected {
        return Ok(());
    }
    Err(StoreError::SeqConflict {
        stream_key: stream_key.to_owned(),
        expected,
        actual: given_seq,
    })
}

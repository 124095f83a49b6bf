//! Encodes events for the server.

use serde_json::value::RawValue;

use super::jsonb_text::escapes_nul;
use crate::event::StreamEvent;
use crate::pg::encoding;
use crate::store::{StoreError, check_stream_key};

/// The most bytes of an event's JSON, here and as the server writes it: `payload_text()` in `migrations/0002_append.sql`.
const MAX_EVENT_BYTES: usize = 64 << 20;

/// The most bytes of the events of one batch. The server accepts no message of a gigabyte.
const MAX_BATCH_BYTES: usize = 512 << 20;

/// An event that passed every check that needs no server, so that it does not fail the transaction it is sent in.
pub(super) struct EncodedEvent {
    pub(super) payload: Box<RawValue>,
    /// 0 if the store assigns the number.
    pub(super) expected_seq: i64,
}

impl EncodedEvent {
    pub(super) fn new<E: StreamEvent>(event: &E) -> Result<Self, StoreError> {
        let stream_key = event.stream_key();
        check_stream_key(stream_key)?;
        let failed = |reason: String| StoreError::Encode {
            stream_key: stream_key.to_owned(),
            reason,
        };
        let payload = serde_json::value::to_raw_value(event).map_err(|error| failed(error.to_string()))?;
        if payload.get().len() > MAX_EVENT_BYTES {
            return Err(failed("the event has more than 64 MiB as text".to_owned()));
        }
        if escapes_nul(payload.get()) {
            return Err(failed("Postgres cannot store the NUL character (\\u0000)".to_owned()));
        }
        Ok(Self {
            payload,
            // -1 is never the next number, so the server refuses it, as it must refuse a number beyond its range.
            expected_seq: i64::try_from(event.seq()).unwrap_or(-1),
        })
    }

    pub(super) fn new_all<E: StreamEvent>(events: &[E]) -> Result<Vec<Self>, StoreError> {
        let mut bytes = 0_usize;
        let encode = |event: &E| {
            let encoded = Self::new(event)?;
            bytes = bytes.saturating_add(encoded.payload.get().len());
            if bytes > MAX_BATCH_BYTES {
                return Err(StoreError::Encode {
                    stream_key: event.stream_key().to_owned(),
                    reason: "the events of the batch up to this one have more than 512 MiB as text".to_owned(),
                });
            }
            Ok(encoded)
        };
        events.iter().map(encode).collect()
    }
}

/// Names the stream whose event, or whose key, has the character that the server could not encode, if the error is about one.
pub(super) fn restore_stream(error: StoreError, stream_keys: &[&str], events: &[EncodedEvent]) -> StoreError {
    let StoreError::Encode { stream_key, reason } = error else {
        return error;
    };
    let concerned = encoding::named_in(&reason).and_then(|character| {
        let mut all = stream_keys.iter().zip(events);
        let (concerned, _) = all.find(|(stream_key, event)| {
            stream_key.contains(&*character) || event.payload.get().contains(&*character)
        })?;
        Some((*concerned).to_owned())
    });
    StoreError::Encode {
        stream_key: concerned.unwrap_or(stream_key),
        reason,
    }
}

/// Restores a number beyond the server's range, which was sent as -1, in the error that reports it.
pub(super) fn restore_actual_seq<E: StreamEvent>(error: StoreError, events: &[E]) -> StoreError {
    match error {
        StoreError::SeqConflict {
            stream_key,
            expected,
            actual: u64::MAX,
        } => {
            let out_of_range = |event: &&E| event.stream_key() == stream_key && i64::try_from(event.seq()).is_err();
            let actual = events.iter().find(out_of_range).map_or(u64::MAX, StreamEvent::seq);
            StoreError::SeqConflict {
                stream_key,
                expected,
                actual,
            }
        }
        error => error,
    }
}

//! Encodes events for the server.

use serde_json::value::RawValue;

use super::jsonb_text::escapes_nul;
use crate::event::StreamEvent;
use crate::store::{StoreError, check_stream_key};

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
        events.iter().map(Self::new).collect()
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

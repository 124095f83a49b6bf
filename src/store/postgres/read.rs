//! Reads records, and decodes their events.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sqlx::Row as _;
use sqlx::postgres::PgRow;

use super::PostgresStore;
use super::error::{Operation, store_error};
use crate::event::StreamEvent;
use crate::store::{
    EventId, Heads, Page, RecentRange, Record, ReplayRange, StoreError, StreamHead, Undecodable, Watermark,
};

impl<E: StreamEvent> PostgresStore<E> {
    /// Reads all ranges in one query, so in one snapshot, unless the server cancels it.
    pub(super) async fn read_pages(&self, ranges: &[ReplayRange], limit: usize) -> Result<Vec<Page<E>>, StoreError> {
        match self.read_at_once(ranges, limit).await {
            Err(error) if is_cancelled_by_server(&error) && (ranges.len() > 1 || limit > 1) => {
                let mut pages = Vec::with_capacity(ranges.len());
                for range in ranges {
                    pages.push(self.read_in_parts(range, limit).await?);
                }
                Ok(pages)
            }
            pages => pages.map_err(|error| self.page_error(error)),
        }
    }

    /// Reads a range with several queries, and fewer records per query after each that was cancelled.
    async fn read_in_parts(&self, range: &ReplayRange, limit: usize) -> Result<Page<E>, StoreError> {
        let mut rest = range.clone();
        let mut whole = Page::from_events(Vec::new());
        let mut part = limit.div_ceil(2);
        loop {
            let asked = part.min(limit - whole.records.len());
            let pages = match self.read_at_once(std::slice::from_ref(&rest), asked).await {
                Err(error) if is_cancelled_by_server(&error) && part > 1 => {
                    part /= 2;
                    continue;
                }
                // The next read begins with what could not be read.
                Err(_) if !whole.records.is_empty() => {
                    whole.more = true;
                    break;
                }
                pages => pages.map_err(|error| self.page_error(error))?,
            };
            let Some(mut page) = pages.into_iter().next() else {
                break;
            };
            if whole.records.is_empty() {
                whole.low_water = page.low_water;
                whole.low_water_id = page.low_water_id;
            }
            let count = page.records.len();
            rest.after = page.records.last().map_or(rest.after, |record| record.seq);
            whole.records.append(&mut page.records);
            whole.more = page.more;
            if page.more || count < asked || whole.records.len() >= limit {
                break;
            }
        }
        Ok(whole)
    }

    async fn read_at_once(&self, ranges: &[ReplayRange], limit: usize) -> Result<Vec<Page<E>>, sqlx::Error> {
        if ranges.is_empty() {
            return Ok(Vec::new());
        }
        let after: Vec<i64> = ranges.iter().map(|range| clamp(range.after)).collect();
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let query = |server| {
            sqlx::query(&self.inner.schema.replay_many)
                .bind(self.sendable(ranges.iter().map(|range| &*range.stream_key)))
                .bind(&after)
                .bind(limit)
                .bind(READ_BYTES)
                .bind(server)
        };
        let rows = self.fetch_all(query).await?;
        // A range without a row was not reached.
        let unread = || Page {
            more: true,
            ..Page::from_events(Vec::new())
        };
        let mut pages: Vec<Page<E>> = ranges.iter().map(|_| unread()).collect();
        for row in rows {
            let ordinal = usize::try_from(row.try_get::<i64, _>(0)?).unwrap_or(0);
            let index = ordinal.wrapping_sub(1);
            if let (Some(page), Some(range)) = (pages.get_mut(index), ranges.get(index)) {
                page.low_water = row.try_get::<i64, _>(1)?.cast_unsigned();
                page.low_water_id = row.try_get::<Option<&[u8]>, _>(2)?.and_then(event_id);
                page.more = row.try_get(8)?;
                if let Some(seq) = row.try_get::<Option<i64>, _>(3)? {
                    page.records.push(record(&row, &range.stream_key, seq.cast_unsigned())?);
                }
            }
        }
        Ok(pages)
    }

    /// Returns the keys to send. Reading a stream with an invalid key finds nothing; a key with NUL, or with a character that the server is
    /// known to lack, cannot be sent, so the empty key is sent instead.
    fn sendable<'k>(&self, stream_keys: impl Iterator<Item = &'k str>) -> Vec<&'k str> {
        let is_sendable = |key: &str| !key.contains('\0') && !self.inner.untranslatable.is_in(key);
        stream_keys.map(|key| if is_sendable(key) { key } else { "" }).collect()
    }

    fn page_error(&self, error: sqlx::Error) -> StoreError {
        store_error(error, &self.inner.schema, Operation::ReadEvents)
    }

    pub(super) async fn read_high_water(&self, stream_key: &str) -> Result<u64, StoreError> {
        let query = |server| {
            sqlx::query(&self.inner.schema.high_waters)
                .bind(self.sendable([stream_key].into_iter()))
                .bind(server)
        };
        let row = self.fetch_one(query).await.map_err(|error| self.read_error(error))?;
        let high_waters: Vec<i64> = self.get(&row, 0)?;
        Ok(high_waters.first().map_or(0, |high_water| high_water.cast_unsigned()))
    }

    pub(super) async fn read_heads(&self, stream_keys: &[&str]) -> Result<Heads, StoreError> {
        let query = |server| {
            sqlx::query(&self.inner.schema.heads)
                .bind(self.sendable(stream_keys.iter().copied()))
                .bind(server)
        };
        let row = self.fetch_one(query).await.map_err(|error| self.read_error(error))?;
        let watermark: Option<String> = self.get(&row, 2)?;
        Ok(Heads {
            streams: self.heads_in(&row, 0)?,
            watermark: watermark.map(Watermark::new),
            is_standby: self.get(&row, 3)?,
        })
    }

    /// Returns the heads whose numbers are in a column, and whose IDs are in the next.
    pub(super) fn heads_in(&self, row: &PgRow, column: usize) -> Result<Vec<StreamHead>, StoreError> {
        let seqs: Vec<i64> = self.get(row, column)?;
        let ids: Vec<Option<Vec<u8>>> = self.get(row, column + 1)?;
        let heads = seqs.into_iter().zip(ids).map(|(seq, id)| StreamHead {
            seq: seq.cast_unsigned(),
            id: id.and_then(|id| event_id(&id)),
        });
        Ok(heads.collect())
    }

    pub(super) async fn read_first_recent(&self, ranges: &[RecentRange]) -> Result<Vec<Option<u64>>, StoreError> {
        if ranges.is_empty() {
            return Ok(Vec::new());
        }
        let after: Vec<i64> = ranges.iter().map(|range| clamp(range.after)).collect();
        let through: Vec<i64> = ranges.iter().map(|range| clamp(range.through)).collect();
        let watermarks: Vec<Option<&str>> = ranges.iter().map(|range| usable(range.watermark.as_ref())).collect();
        let max_ages: Vec<f64> = ranges.iter().map(|range| range.max_age.as_secs_f64()).collect();
        let query = |server| {
            sqlx::query(&self.inner.schema.first_recent)
                .bind(self.sendable(ranges.iter().map(|range| &*range.stream_key)))
                .bind(&after)
                .bind(&through)
                .bind(&watermarks)
                .bind(&max_ages)
                .bind(server)
        };
        let row = self.fetch_one(query).await.map_err(|error| self.read_error(error))?;
        let found: Vec<Option<i64>> = self.get(&row, 0)?;
        Ok(found.into_iter().map(|seq| seq.map(i64::cast_unsigned)).collect())
    }

    pub(super) async fn read_event_ids(
        &self,
        positions: &[(Arc<str>, u64)],
    ) -> Result<Vec<Option<EventId>>, StoreError> {
        if positions.is_empty() {
            return Ok(Vec::new());
        }
        // Neither 0 nor a number beyond the server's range is the number of an event.
        let seqs: Vec<i64> = positions
            .iter()
            .map(|(_, seq)| i64::try_from(*seq).unwrap_or(0))
            .collect();
        let query = |server| {
            sqlx::query(&self.inner.schema.event_ids)
                .bind(self.sendable(positions.iter().map(|(stream_key, _)| &**stream_key)))
                .bind(&seqs)
                .bind(server)
        };
        let row = self.fetch_one(query).await.map_err(|error| self.read_error(error))?;
        let ids: Vec<Option<Vec<u8>>> = self.get(&row, 0)?;
        Ok(ids.into_iter().map(|id| event_id(&id?)).collect())
    }
}

/// A read ends with the event that brings its payloads to this many bytes. The server keeps this much in memory, and a link that carries
/// 200 kB/s has it within the default response timeout.
const READ_BYTES: i64 = 2 << 20;

/// Whether the server may need less for fewer events: it has cancelled the statement, or a limit did.
fn is_cancelled_by_server(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| matches!(&*code, "57014" | "25P04" | "53100" | "53200" | "53400" | "54000"))
}

fn record<E: StreamEvent>(row: &PgRow, stream_key: &str, seq: u64) -> Result<Record<E>, sqlx::Error> {
    let id: &[u8] = row.try_get(4)?;
    let previous_id: Option<&[u8]> = row.try_get(5)?;
    let payload = row.try_get_raw(7)?;
    let event = match payload.as_bytes() {
        // A database with the encoding SQL_ASCII can hold any bytes.
        Ok(bytes) => match std::str::from_utf8(bytes) {
            Ok(payload) => decode(payload, stream_key, seq),
            Err(error) => Err(Undecodable {
                reason: error.to_string(),
            }),
        },
        Err(_) => Err(Undecodable {
            reason: "the event has more than 64 MiB as text".to_owned(), // the payload is null
        }),
    };
    Ok(Record {
        seq,
        id: event_id(id),
        previous_id: previous_id.and_then(event_id),
        appended_at: time(row.try_get(6)?),
        event,
    })
}

/// Returns a watermark's text, unless it is one of another kind of store.
pub(super) fn usable(watermark: Option<&Watermark>) -> Option<&str> {
    let text = watermark.map(Watermark::as_str)?;
    let is_object = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(text).is_ok();
    is_object.then_some(text)
}

/// Limits a number to the server's range, beyond which no event has a number.
fn clamp(seq: u64) -> i64 {
    i64::try_from(seq).unwrap_or(i64::MAX)
}

pub(super) fn event_id(bytes: &[u8]) -> Option<EventId> {
    Some(EventId(u128::from_be_bytes(bytes.try_into().ok()?)))
}

/// Converts a time. Returns `None` for one before 1970, which no store has assigned.
pub(super) fn time(seconds_since_epoch: f64) -> Option<SystemTime> {
    let since_epoch = Duration::try_from_secs_f64(seconds_since_epoch).ok()?;
    UNIX_EPOCH.checked_add(since_epoch)
}

/// Decodes a payload and gives the event the number of its row.
fn decode<E: StreamEvent>(payload: &str, stream_key: &str, seq: u64) -> Result<E, Undecodable> {
    // A panic in the event type's decoder must not stop reads for all streams.
    let decoded = catch_unwind(AssertUnwindSafe(|| decode_unguarded(payload, stream_key, seq)));
    decoded.unwrap_or_else(|panic| {
        let message = panic.downcast_ref::<&str>().copied();
        let message = message.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Err(Undecodable {
            reason: format!("the decoder panicked: {}", message.unwrap_or("no message")),
        })
    })
}

fn decode_unguarded<E: StreamEvent>(payload: &str, stream_key: &str, seq: u64) -> Result<E, Undecodable> {
    let event: E = serde_json::from_str(payload).map_err(|error| Undecodable {
        reason: error.to_string(),
    })?;
    if event.stream_key() != stream_key {
        return Err(Undecodable {
            reason: format!(
                "the event belongs to stream {:?} but is stored in stream {stream_key:?}",
                event.stream_key()
            ),
        });
    }
    Ok(event.with_seq(seq))
}

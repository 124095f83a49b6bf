//! Removes old events, in bounded steps.

use std::slice;
use std::time::Duration;

use super::PostgresStore;
use crate::event::StreamEvent;
use crate::store::StoreError;

/// The maximum number of events of one stream that one transaction removes. It locks the stream for a few milliseconds.
const EVENTS_PER_STEP: i32 = 1_000;

/// The maximum number of streams that one transaction trims.
const STREAMS_PER_STEP: usize = 16;

/// The maximum number of streams that one query lists.
const STREAMS_PER_QUERY: i32 = 1_000;

/// The oldest and the last event of a stream.
struct StreamExtent {
    stream_key: String,
    oldest_seq: i64,
    /// Seconds since the oldest event was appended.
    oldest_age: f64,
    last_seq: i64,
}

impl<E: StreamEvent> PostgresStore<E> {
    /// Removes the events of a stream up to and including number `through`, and returns how many it removed.
    ///
    /// A number above the last event's removes all of them. The stream's numbering continues in any case, and readers find the
    /// last removed number in [`Page::low_water`](crate::store::Page::low_water).
    ///
    /// Removes the oldest events first, in transactions of at most 1,000 events, one round trip each.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Store::append`](crate::store::Store::append) that concern the key, the connection, the lock and
    /// the migrations.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped or fails, events that were already removed stay removed.
    ///
    /// ```no_run
    /// # async fn run(store: doorbell::store::PostgresStore) -> Result<(), doorbell::store::StoreError> {
    /// let removed = store.trim("agent-1", 1_000).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn trim(&self, stream_key: &str, through: u64) -> Result<u64, StoreError> {
        crate::store::check_stream_key(stream_key)?;
        let through = i64::try_from(through).unwrap_or(i64::MAX);
        let mut blocked = Vec::new();
        let removed = self
            .trim_streams(&[(stream_key.to_owned(), through)], &mut blocked)
            .await?;
        unless_blocked(removed, &blocked)
    }

    /// Removes all events that were appended more than `age` ago, by the server's clock, and returns how many it removed.
    ///
    /// Each stream loses its events in order. If the clock was set back, an old event may therefore be kept because it follows a
    /// younger one.
    ///
    /// Takes one round trip per 1,000 streams to list them, and the transactions of [`trim`](Self::trim), each for up to 16
    /// streams.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`trim`](Self::trim). If another session keeps a stream locked for the lock timeout, returns
    /// [`StoreError::LockTimeout`] after the others were trimmed. Streams that are found locked after that one are skipped, too.
    ///
    /// ```no_run
    /// # async fn run(store: doorbell::store::PostgresStore) -> Result<(), doorbell::store::StoreError> {
    /// let month = std::time::Duration::from_secs(30 * 24 * 3600);
    /// let removed = store.trim_older_than(month).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn trim_older_than(&self, age: Duration) -> Result<u64, StoreError> {
        // A thousand years, which fit in a Postgres interval.
        let age = age.as_secs_f64().min(3.2e10);
        let mut removed = 0;
        let mut blocked = Vec::new();
        let mut after_key = String::new();
        loop {
            let extents = self.stream_extents(&after_key).await?;
            let Some(last) = extents.last() else {
                return unless_blocked(removed, &blocked);
            };
            after_key.clone_from(&last.stream_key);
            let mut old: Vec<String> = extents
                .into_iter()
                .filter(|stream| stream.oldest_age > age)
                .map(|stream| stream.stream_key)
                .collect();
            // A stream is finished when it has no old events left.
            while !old.is_empty() {
                let mut unfinished = Vec::new();
                for streams in old.chunks(STREAMS_PER_STEP) {
                    let (removed_here, mut rest) = self.trim_old_step(streams, age, &mut blocked).await?;
                    removed += removed_here;
                    unfinished.append(&mut rest);
                }
                old = unfinished;
            }
        }
    }

    /// Removes all but the last `count` events of every stream, and returns how many it removed. If `count` is 0, streams keep
    /// only their numbering.
    ///
    /// Costs the same as [`trim_older_than`](Self::trim_older_than).
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`trim_older_than`](Self::trim_older_than).
    ///
    /// ```no_run
    /// # async fn run(store: doorbell::store::PostgresStore) -> Result<(), doorbell::store::StoreError> {
    /// let removed = store.keep_last(10_000).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn keep_last(&self, count: u64) -> Result<u64, StoreError> {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let mut removed = 0;
        let mut blocked = Vec::new();
        let mut after_key = String::new();
        loop {
            let extents = self.stream_extents(&after_key).await?;
            let Some(last) = extents.last() else {
                return unless_blocked(removed, &blocked);
            };
            after_key.clone_from(&last.stream_key);
            let surplus: Vec<(String, i64)> = extents
                .into_iter()
                .map(|stream| {
                    (
                        stream.oldest_seq,
                        stream.stream_key,
                        stream.last_seq.saturating_sub(count),
                    )
                })
                .filter(|(oldest_seq, _, through)| oldest_seq <= through)
                .map(|(_, stream_key, through)| (stream_key, through))
                .collect();
            for streams in surplus.chunks(STREAMS_PER_STEP) {
                removed += self.trim_streams(streams, &mut blocked).await?;
            }
        }
    }

    /// Trims all of these streams, in as many transactions as needed, and returns how many events it removed. Adds streams that stay
    /// locked to `blocked`.
    async fn trim_streams(&self, streams: &[(String, i64)], blocked: &mut Vec<String>) -> Result<u64, StoreError> {
        let (mut removed, locked) = match self.trim_unlocked(streams).await {
            Err(StoreError::LockTimeout) => {
                blocked.extend(streams.iter().map(|(stream_key, _)| stream_key.clone()));
                return Ok(0);
            }
            trimmed => trimmed?,
        };
        for stream in streams.iter().filter(|(stream_key, _)| locked.contains(stream_key)) {
            // Alone, a stream is waited for: no other one is locked meanwhile. But the whole call waits for only one lock timeout.
            let trimmed = match blocked.is_empty() {
                true => self.trim_unlocked(slice::from_ref(stream)).await,
                false => Err(StoreError::LockTimeout),
            };
            match trimmed {
                Err(StoreError::LockTimeout) => blocked.push(stream.0.clone()),
                trimmed => removed += trimmed?.0,
            }
        }
        Ok(removed)
    }

    /// The same, but if there are several streams, those that are locked are not waited for. Returns their keys, too.
    async fn trim_unlocked(&self, streams: &[(String, i64)]) -> Result<(u64, Vec<String>), StoreError> {
        let mut removed = 0;
        loop {
            let (step, locked) = self.trim_step(streams).await?;
            if step == 0 {
                return Ok((removed, locked));
            }
            removed += step;
        }
    }

    /// Removes at most [`EVENTS_PER_STEP`] events from each stream, in one transaction. Returns how many it removed, and the streams
    /// that were skipped because they are locked.
    async fn trim_step(&self, streams: &[(String, i64)]) -> Result<(u64, Vec<String>), StoreError> {
        let (stream_keys, throughs): (Vec<&str>, Vec<i64>) = streams
            .iter()
            .map(|(stream_key, through)| (stream_key.as_str(), *through))
            .unzip();
        let query = |server, lock_timeout_ms: i32| {
            sqlx::query(&self.inner.schema.trim_streams)
                .bind(&stream_keys)
                .bind(&throughs)
                .bind(EVENTS_PER_STEP)
                .bind(lock_timeout_ms)
                .bind(server)
        };
        let row = self
            .fetch_one_locking(query)
            .await
            .map_err(|error| self.read_error(error))?;
        Ok((self.get::<i64>(&row, 0)?.cast_unsigned(), self.get(&row, 1)?))
    }

    /// Removes events older than `age` seconds. Returns how many, and the streams that may have more of them. Adds streams that stay
    /// locked to `blocked`.
    async fn trim_old_step(
        &self,
        streams: &[String],
        age: f64,
        blocked: &mut Vec<String>,
    ) -> Result<(u64, Vec<String>), StoreError> {
        let query = |server| {
            sqlx::query(&self.inner.schema.last_seqs_before)
                .bind(streams)
                .bind(age)
                .bind(EVENTS_PER_STEP)
                .bind(server)
        };
        let row = self.fetch_one(query).await.map_err(|error| self.read_error(error))?;
        let last_seqs: Vec<Option<i64>> = self.get(&row, 0)?;
        let old = streams.iter().zip(last_seqs);
        let old: Vec<(String, i64)> = old.filter_map(|(key, last)| Some((key.clone(), last?))).collect();
        if old.is_empty() {
            return Ok((0, Vec::new()));
        }
        let removed = self.trim_streams(&old, blocked).await?;
        let stream_keys = old.into_iter().map(|(stream_key, _)| stream_key);
        Ok((
            removed,
            stream_keys.filter(|stream_key| !blocked.contains(stream_key)).collect(),
        ))
    }

    async fn stream_extents(&self, after_key: &str) -> Result<Vec<StreamExtent>, StoreError> {
        let query = |server| {
            sqlx::query(&self.inner.schema.stream_extents)
                .bind(after_key)
                .bind(STREAMS_PER_QUERY)
                .bind(server)
        };
        let rows = self.fetch_all(query).await.map_err(|error| self.read_error(error))?;
        rows.iter()
            .map(|row| {
                Ok(StreamExtent {
                    stream_key: self.get(row, 0)?,
                    oldest_seq: self.get(row, 1)?,
                    oldest_age: self.get(row, 2)?,
                    last_seq: self.get(row, 3)?,
                })
            })
            .collect()
    }
}

/// The result of a call that has trimmed all streams but those that stayed locked.
fn unless_blocked(removed: u64, blocked: &[String]) -> Result<u64, StoreError> {
    match blocked {
        [] => Ok(removed),
        [..] => Err(StoreError::LockTimeout),
    }
}

//! Removing old events, in bounded steps.

use std::time::Duration;

use super::PostgresStore;
use crate::event::StreamEvent;
use crate::store::StoreError;

/// The most events that one transaction removes of a stream. The stream is locked meanwhile, for some milliseconds.
const EVENTS_PER_STEP: i32 = 1_000;

/// The most streams that one transaction trims.
const STREAMS_PER_STEP: usize = 16;

/// How many streams one query looks at.
const STREAMS_PER_LOOK: i32 = 1_000;

/// A stream, as retention sees it.
struct Age {
    stream_key: String,
    oldest_seq: i64,
    /// Seconds since its oldest event was appended.
    oldest_age: f64,
    last_seq: i64,
}

impl<E: StreamEvent> PostgresStore<E> {
    /// Removes the events of a stream up to number `through`, and gives how many that were. Numbers beyond the last are as good as
    /// the last; the stream's numbers go on in any case, and [`Page::low_water`](crate::store::Page::low_water) tells readers.
    ///
    /// It works in transactions of at most 1,000 events, the oldest first, each a round trip, and each complete in itself: if the
    /// future is dropped, or fails, what was removed until then stays removed.
    ///
    /// # Errors
    ///
    /// As [`Store::append`](crate::store::Store::append), as far as they concern the connection, the lock and the migrations.
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
        self.trim_streams(&[(stream_key.to_owned(), through)]).await
    }

    /// Removes all events that were appended longer than `age` ago, by the server's clock, and gives how many that were. Where the
    /// clock was set back an older event may stay behind a younger one, since a stream loses its events in their order.
    ///
    /// One round trip for each 1,000 streams to look, and the steps of [`trim`](Self::trim), of up to 16 streams at once.
    ///
    /// # Errors
    ///
    /// As [`trim`](Self::trim).
    ///
    /// ```no_run
    /// # async fn run(store: doorbell::store::PostgresStore) -> Result<(), doorbell::store::StoreError> {
    /// let month = std::time::Duration::from_secs(30 * 24 * 3600);
    /// let removed = store.trim_older_than(month).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn trim_older_than(&self, age: Duration) -> Result<u64, StoreError> {
        // A thousand years are enough, and fit an interval.
        let age = age.as_secs_f64().min(3.2e10);
        let mut removed = 0;
        let mut after_key = String::new();
        loop {
            let ages = self.stream_ages(&after_key).await?;
            let Some(last) = ages.last() else { return Ok(removed) };
            after_key.clone_from(&last.stream_key);
            let mut old: Vec<String> = ages
                .into_iter()
                .filter(|stream| stream.oldest_age > age)
                .map(|stream| stream.stream_key)
                .collect();
            // A stream stays among them until a step has not used up its bound.
            while !old.is_empty() {
                let mut unfinished = Vec::new();
                for streams in old.chunks(STREAMS_PER_STEP) {
                    let (removed_here, mut rest) = self.trim_old_step(streams, age).await?;
                    removed += removed_here;
                    unfinished.append(&mut rest);
                }
                old = unfinished;
            }
        }
    }

    /// Removes all but the last `count` events of every stream, and gives how many that were. With `count` 0 only the numbers stay.
    ///
    /// The cost is that of [`trim_older_than`](Self::trim_older_than).
    ///
    /// # Errors
    ///
    /// As [`trim`](Self::trim).
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
        let mut after_key = String::new();
        loop {
            let ages = self.stream_ages(&after_key).await?;
            let Some(last) = ages.last() else { return Ok(removed) };
            after_key.clone_from(&last.stream_key);
            let surplus: Vec<(String, i64)> = ages
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
                removed += self.trim_streams(streams).await?;
            }
        }
    }

    /// Trims all of these streams, in as many transactions as it takes.
    async fn trim_streams(&self, streams: &[(String, i64)]) -> Result<u64, StoreError> {
        let mut removed = 0;
        loop {
            let step = self.trim_step(streams).await?;
            if step == 0 {
                return Ok(removed);
            }
            removed += step;
        }
    }

    /// One transaction, of at most [`EVENTS_PER_STEP`] of each stream.
    async fn trim_step(&self, streams: &[(String, i64)]) -> Result<u64, StoreError> {
        let (stream_keys, throughs): (Vec<&str>, Vec<i64>) = streams
            .iter()
            .map(|(stream_key, through)| (stream_key.as_str(), *through))
            .unzip();
        let query = sqlx::query(&self.shared.schema.trim_streams)
            .bind(stream_keys)
            .bind(throughs)
            .bind(EVENTS_PER_STEP)
            .bind(self.shared.lock_timeout_ms);
        let row = self.run_locking(query).await.map_err(|error| self.read_error(error))?;
        Ok(self.get::<Option<i64>>(&row, 0)?.unwrap_or(0).cast_unsigned())
    }

    /// Removes the oldest events of these streams, as far as they are older than `age` seconds; gives how many, and the streams that may have more.
    async fn trim_old_step(&self, streams: &[String], age: f64) -> Result<(u64, Vec<String>), StoreError> {
        let query = sqlx::query(&self.shared.schema.last_seq_before)
            .bind(streams)
            .bind(age)
            .bind(EVENTS_PER_STEP);
        let lasts = self.run(query).await.map_err(|error| self.read_error(error))?;
        let mut old = Vec::new();
        for (stream_key, row) in streams.iter().zip(&lasts) {
            if let Some(last) = self.get::<Option<i64>>(row, 0)? {
                old.push((stream_key.clone(), last));
            }
        }
        if old.is_empty() {
            return Ok((0, Vec::new()));
        }
        let removed = self.trim_streams(&old).await?;
        Ok((removed, old.into_iter().map(|(stream_key, _)| stream_key).collect()))
    }

    async fn stream_ages(&self, after_key: &str) -> Result<Vec<Age>, StoreError> {
        let query = sqlx::query(&self.shared.schema.stream_extents)
            .bind(after_key)
            .bind(STREAMS_PER_LOOK);
        let rows = self.run(query).await.map_err(|error| self.read_error(error))?;
        rows.iter()
            .map(|row| {
                Ok(Age {
                    stream_key: self.get(row, 0)?,
                    oldest_seq: self.get(row, 1)?,
                    oldest_age: self.get(row, 2)?,
                    last_seq: self.get(row, 3)?,
                })
            })
            .collect()
    }
}

//! The naive design: every subscriber has its own `LISTEN` connection and reads each event itself.
//!
//! Built as well as that can be: a channel for each stream, so that no subscriber is woken needlessly; one round trip to append and notify;
//! a subscriber that finds several notifications reads once for all of them; and all connections that the server has left
//! are there for reading.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use sqlx::postgres::{PgListener, PgPoolOptions};
use sqlx::{PgPool, Row};

use super::{Bus, Failure};
use crate::bus::delivery_tracker::SubscriberTracker;
use crate::bus::timed_event::TimedEvent;

/// Appends one event; the row lock on the head makes numbers follow the order of commit.
const APPEND: &str = "
    WITH head AS (
        INSERT INTO naive.heads AS heads (stream, number) VALUES ($1, 1)
        ON CONFLICT (stream) DO UPDATE SET number = heads.number + 1
        RETURNING number
    ), event AS (
        INSERT INTO naive.events (stream, number, payload) SELECT $1, number, $2 FROM head RETURNING number
    )
    SELECT pg_notify($1, number::text) FROM event";

const READ: &str = "SELECT number, payload FROM naive.events WHERE stream = $1 AND number > $2 ORDER BY number";

const CREATE: &str = "
    SELECT pg_advisory_lock(1);
    CREATE SCHEMA IF NOT EXISTS naive;
    CREATE TABLE IF NOT EXISTS naive.heads (stream text PRIMARY KEY, number bigint NOT NULL);
    CREATE TABLE IF NOT EXISTS naive.events (
        stream text, number bigint, payload jsonb NOT NULL, PRIMARY KEY (stream, number)
    );
    SELECT pg_advisory_unlock(1);";

pub struct Naive {
    url: String,
    pool: PgPool,
    reads: Arc<AtomicU64>,
}

impl Naive {
    pub async fn connect(url: &str, connections: u32) -> Result<Self, Failure> {
        let pool = PgPoolOptions::new()
            .max_connections(connections)
            .test_before_acquire(false)
            .connect(url)
            .await?;
        sqlx::raw_sql(CREATE).execute(&pool).await?;
        Ok(Self {
            url: url.to_owned(),
            pool,
            reads: Arc::default(),
        })
    }
}

#[async_trait]
impl Bus for Naive {
    async fn subscribe(&self, trackers: Vec<(String, SubscriberTracker)>) -> Result<(), Failure> {
        for (stream, tracker) in trackers {
            let mut listener = PgListener::connect(&self.url).await?;
            listener.listen(&stream).await?;
            tokio::spawn(listen(
                listener,
                stream,
                self.pool.clone(),
                Arc::clone(&self.reads),
                tracker,
            ));
        }
        Ok(())
    }

    async fn publish(&self, timed_event: TimedEvent) -> Result<(), Failure> {
        sqlx::query(APPEND)
            .bind(&timed_event.stream)
            .bind(sqlx::types::Json(&timed_event))
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    async fn publish_batch(&self, events: Vec<TimedEvent>) -> Result<(), Failure> {
        let mut transaction = self.pool.begin().await?;
        for timed_event in events {
            sqlx::query(APPEND)
                .bind(&timed_event.stream)
                .bind(sqlx::types::Json(&timed_event))
                .execute(&mut *transaction)
                .await?;
        }
        transaction.commit().await?;
        Ok(())
    }

    fn reads(&self) -> u64 {
        // Relaxed: see above.
        self.reads.load(Ordering::Relaxed)
    }
}

/// One subscriber. Ends with its connection, as the process does.
async fn listen(
    mut listener: PgListener,
    stream: String,
    pool: PgPool,
    reads: Arc<AtomicU64>,
    mut tracker: SubscriberTracker,
) {
    let mut seen = 0_i64;
    while listener.recv().await.is_ok() {
        while listener.next_buffered().is_some() {}
        let Ok(rows) = sqlx::query(READ).bind(&stream).bind(seen).fetch_all(&pool).await else {
            break;
        };
        // Relaxed: a count, read when all is over.
        reads.fetch_add(1, Ordering::Relaxed);
        for row in rows {
            seen = row.get(0);
            let sqlx::types::Json(timed_event) = row.get::<sqlx::types::Json<TimedEvent>, _>(1);
            tracker.take(seen as u64, timed_event.sent);
        }
    }
}

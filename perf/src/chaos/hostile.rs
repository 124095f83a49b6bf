//! A role that may only connect to the database. It notifies the bus's channel, floods it, and locks streams, as every such role can.

use std::fmt;
use std::ops::AddAssign;

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, PgConnection};
use testkit::random::{Rng, RngExt as _};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::{Failure, STREAMS, stream};
use crate::child::LIMIT;

/// The name of the role. Creating it grants nothing.
const ROLE: &str = "hostile";
pub(super) const CREATE_ROLE: &str = "CREATE ROLE hostile LOGIN";

/// Streams that are named in notifications, including some that do not exist.
const NAMED_STREAMS: u64 = STREAMS + 2;

#[derive(Clone, Copy, Debug)]
pub(super) enum Attack {
    /// Notifications with payloads of every kind.
    Forge,
    /// Tens of thousands of notifications at once.
    Flood,
    /// Locks on some or all streams. Appends to them wait.
    Lock,
}

/// What the role has achieved.
#[derive(Default)]
struct Done {
    notifications: u64,
    locks: u64,
    /// Appends, and trims, that waited for one of its locks.
    blocked: u64,
}

impl AddAssign for Done {
    fn add_assign(&mut self, other: Self) {
        self.notifications += other.notifications;
        self.locks += other.locks;
        self.blocked += other.blocked;
    }
}

/// The sessions of the role, each of which makes one attack in the background.
pub(super) struct Hostile {
    options: PgConnectOptions,
    runtime: Handle,
    sessions: JoinSet<Done>,
    done: Done,
}

impl Hostile {
    pub(super) fn new(url: &str, runtime: Handle) -> Result<Self, Failure> {
        Ok(Self {
            options: url.parse::<PgConnectOptions>()?.username(ROLE),
            runtime,
            sessions: JoinSet::new(),
            done: Done::default(),
        })
    }

    pub(super) fn begin(&mut self, attack: Attack, rng: &mut Rng) {
        self.reap();
        let session = session(self.options.clone(), attack, rng.fork());
        self.sessions.spawn_on(session, &self.runtime);
    }

    /// Ends all sessions.
    pub(super) fn stop(&mut self) {
        self.reap();
        self.sessions.abort_all();
    }

    fn reap(&mut self) {
        while let Some(session) = self.sessions.try_join_next() {
            self.done += session.unwrap_or_default();
        }
    }
}

impl fmt::Display for Hostile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Done {
            notifications,
            locks,
            blocked,
        } = self.done;
        write!(
            f,
            "the hostile role sent {notifications} notifications, and held {locks} locks, which blocked {blocked} transactions"
        )
    }
}

async fn session(options: PgConnectOptions, attack: Attack, rng: Rng) -> Done {
    let mut done = Done::default();
    let attack = async {
        let mut connection = options.connect().await?;
        match attack {
            Attack::Forge => forge(&mut connection, rng, &mut done).await,
            Attack::Flood => flood(&mut connection, rng, &mut done).await,
            Attack::Lock => lock(&mut connection, rng, &mut done).await,
        }?;
        connection.close().await
    };
    // Other faults end sessions, too.
    let _ = timeout(LIMIT, attack).await;
    done
}

async fn forge(connection: &mut PgConnection, mut rng: Rng, done: &mut Done) -> Result<(), sqlx::Error> {
    for _ in 0..200 {
        sqlx::query("SELECT pg_catalog.pg_notify('doorbell', $1)")
            .bind(payload(&mut rng))
            .execute(&mut *connection)
            .await?;
        done.notifications += 1;
    }
    Ok(())
}

fn payload(rng: &mut Rng) -> String {
    let key = stream(rng.u64(..NAMED_STREAMS));
    match rng.u64(..10) {
        0..3 => format!("{key}:{}", 1 + rng.u64(..5_000)), // may exist
        3 => format!("{key}:1-{}", 1 + rng.u64(..5_000)),
        4 => format!("{key}:{}", rng.u64(..)),
        5 => format!("{key}:1-{}", u64::MAX),
        6 => format!("{key}:9-3\u{1e}:\u{1e}{key}:-1\u{1e}{key}"),
        7 => "*".to_owned(), // requests a sweep
        // A payload may have 7999 bytes.
        8 => (0..rng.u64(..1_999)).map(|_| rng.char('\u{1}'..)).collect(),
        _ => String::new(),
    }
}

async fn flood(connection: &mut PgConnection, mut rng: Rng, done: &mut Done) -> Result<(), sqlx::Error> {
    const FLOOD: &str = "SELECT pg_catalog.count(pg_catalog.pg_notify('doorbell', \
         'agent:' || n % $1 || ':' || n)::text) FROM pg_catalog.generate_series(1, $2) AS n";
    for _ in 0..4 {
        let count = rng.i32(5_000..15_000);
        sqlx::query(FLOOD)
            .bind(NAMED_STREAMS as i32)
            .bind(count)
            .execute(&mut *connection)
            .await?;
        done.notifications += u64::from(count.unsigned_abs());
    }
    Ok(())
}

async fn lock(connection: &mut PgConnection, mut rng: Rng, done: &mut Done) -> Result<(), sqlx::Error> {
    // As the store's functions compute it, for the schema `doorbell`.
    const LOCK: &str = "SELECT pg_catalog.pg_advisory_lock(pg_catalog.hashtextextended($1 COLLATE \"C\", \
         pg_catalog.hashtextextended('doorbell', 0)))";
    const BLOCKED: &str = "SELECT count(*) FROM pg_catalog.pg_locks WHERE locktype = 'advisory' AND NOT granted";
    let mut keys: Vec<String> = (0..STREAMS).map(stream).collect();
    rng.shuffle(&mut keys);
    keys.truncate(1 + rng.usize(..keys.len()));
    for key in &keys {
        sqlx::query(LOCK).bind(key).execute(&mut *connection).await?;
        done.locks += 1;
    }
    sleep(rng.millis(100..3_000)).await;
    let blocked: i64 = sqlx::query_scalar(BLOCKED).fetch_one(&mut *connection).await?;
    done.blocked = blocked.unsigned_abs();
    Ok(())
}

#[cfg(test)]
mod tests {
    use testkit::random::Rng;

    use super::payload;

    #[test]
    fn every_payload_can_be_sent() {
        let mut rng = Rng::with_seed(1);
        for _ in 0..10_000 {
            let payload = payload(&mut rng);
            assert!(payload.len() < 8_000 && !payload.contains('\0'), "{payload:?}");
        }
    }
}

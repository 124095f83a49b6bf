//! A pool that reuses connections quickly and recovers quickly from an outage.
//!
//! sqlx pings every connection that is returned to its pool, which takes a round trip. A [`WarmPool`] keeps a connection for a
//! moment after use, and the next operation takes it without a ping. An operation that waits gets the first connection that another
//! one gives back, even while sqlx tries to open one for it: the server may refuse more connections, by the role's limit or its own.

use std::ops::{Deref, DerefMut};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sqlx::pool::PoolConnection;
use sqlx::{Connection as _, PgPool, Postgres};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// How long an unused connection is kept.
const IDLE_TIMEOUT: Duration = Duration::from_millis(20);

/// How long a connection may be reused before it is returned to the pool, which checks it and enforces its lifetime.
const MAX_REUSE: Duration = Duration::from_millis(100);

/// How long the server may take to answer a ping of a connection that was returned to the pool.
const PING_TIMEOUT: Duration = Duration::from_millis(500);

/// How often a waiting operation looks for a connection that was returned to the pool: sqlx does not while it opens one.
const RECHECK: Duration = Duration::from_millis(5);

/// While connections are scarce, how long an operation waits for one of them before it lets sqlx open another.
const SCARCE_WAIT: Duration = Duration::from_millis(20);

/// How long connections count as scarce after an operation got one that it did not have to open.
const SCARCE_FOR: Duration = Duration::from_secs(1);

/// A pool, and those of its connections that were just used.
pub(crate) struct WarmPool {
    pub(crate) pool: PgPool,
    max_warm: usize,
    warm: Arc<Mutex<WarmConnections>>,
    reconnected: Notify,
    /// A connection was given back while an operation waited.
    handed_over: Notify,
}

#[derive(Default)]
struct WarmConnections {
    idle: Vec<IdleConnection>,
    /// How many operations wait for the pool.
    waiters: usize,
    /// Whether a task removes connections from `idle` in time.
    has_reaper: bool,
    scarce_until: Option<Instant>,
}

impl WarmConnections {
    fn take(&mut self) -> Option<PooledConnection> {
        let mut idle = self.idle.pop()?;
        let connection = idle.connection.take()?;
        Some(PooledConnection {
            connection,
            acquired_at: idle.acquired_at,
        })
    }
}

struct IdleConnection {
    connection: Option<PoolConnection<Postgres>>,
    acquired_at: Instant,
    last_used: Instant,
    runtime: Handle,
}

impl Drop for IdleConnection {
    fn drop(&mut self) {
        // sqlx returns a connection to its pool in a task, so it needs a runtime.
        let _runtime = self.runtime.enter();
        self.connection = None;
    }
}

/// A connection that is in use. Dropping it returns it to the pool, which pings it.
pub(crate) struct PooledConnection {
    connection: PoolConnection<Postgres>,
    acquired_at: Instant,
}

impl PooledConnection {
    fn new(connection: PoolConnection<Postgres>) -> Self {
        Self {
            connection,
            acquired_at: Instant::now(),
        }
    }
}

impl Deref for PooledConnection {
    type Target = PoolConnection<Postgres>;

    fn deref(&self) -> &PoolConnection<Postgres> {
        &self.connection
    }
}

impl DerefMut for PooledConnection {
    fn deref_mut(&mut self) -> &mut PoolConnection<Postgres> {
        &mut self.connection
    }
}

impl WarmPool {
    /// For a pool that the application also uses. Keeps at most 4 connections, and never all of them.
    pub(crate) fn shared(pool: PgPool) -> Self {
        let max_warm = pool.options().get_max_connections().saturating_sub(1).min(4);
        Self::new(pool, max_warm as usize)
    }

    /// For a pool without other users.
    pub(crate) fn exclusive(pool: PgPool) -> Self {
        let max_warm = pool.options().get_max_connections();
        Self::new(pool, max_warm as usize)
    }

    fn new(pool: PgPool, max_warm: usize) -> Self {
        Self {
            pool,
            max_warm,
            warm: Arc::default(),
            reconnected: Notify::new(),
            handed_over: Notify::new(),
        }
    }

    /// Takes a warm connection, or acquires one from the pool within the pool's acquire timeout.
    ///
    /// While the server refuses connections, the pool retries with delays that double up to a fifth of its timeout, so it may
    /// notice only seconds later that an outage is over. [`on_reconnect`](Self::on_reconnect) restarts these attempts.
    pub(crate) async fn acquire(&self) -> Result<PooledConnection, sqlx::Error> {
        let (_waiter, is_scarce) = {
            let mut warm = self.warm.lock();
            if let Some(connection) = warm.take() {
                return Ok(connection);
            }
            warm.waiters += 1;
            let is_scarce = warm.scarce_until.is_some_and(|until| Instant::now() < until);
            (WaiterGuard(&self.warm), is_scarce)
        };
        let deadline = Instant::now() + self.pool.options().get_acquire_timeout();
        if is_scarce && self.pool.num_idle() == 0 {
            let handed_over = async {
                loop {
                    self.handed_over.notified().await;
                    if let Some(connection) = self.warm.lock().take() {
                        return connection;
                    }
                }
            };
            if let Ok(connection) = timeout(SCARCE_WAIT, handed_over).await {
                return Ok(connection);
            }
        }
        loop {
            let acquired = timeout_at(deadline, self.acquire_once()).await;
            if let Some(acquired) = acquired.map_err(|_| sqlx::Error::PoolTimedOut)? {
                return acquired;
            }
            // The server is back: start again.
        }
    }

    /// Waits for a new connection, or one that is not in use any more. `None` when [`on_reconnect`](Self::on_reconnect) is called.
    async fn acquire_once(&self) -> Option<Result<PooledConnection, sqlx::Error>> {
        let may_grow = self.pool.size() < self.pool.options().get_max_connections();
        let mut reconnected = pin!(self.reconnected.notified());
        let mut acquiring = pin!(self.pool.acquire());
        loop {
            let reused = tokio::select! {
                biased;
                acquired = &mut acquiring => return Some(acquired.map(PooledConnection::new)),
                () = &mut reconnected => return None,
                () = self.handed_over.notified() => self.warm.lock().take(),
                () = sleep(RECHECK) => self.try_idle().await,
            };
            if let Some(connection) = reused {
                if may_grow {
                    self.warm.lock().scarce_until = Some(Instant::now() + SCARCE_FOR);
                }
                return Some(Ok(connection));
            }
        }
    }

    /// A connection that is in the pool and alive.
    async fn try_idle(&self) -> Option<PooledConnection> {
        let mut connection = self.pool.try_acquire()?;
        match timeout(PING_TIMEOUT, connection.ping()).await {
            Ok(Ok(())) => Some(PooledConnection::new(connection)),
            Ok(Err(_)) | Err(_) => {
                connection.close_on_drop();
                None
            }
        }
    }

    /// Gives back a connection whose last operation succeeded, without a statement in progress.
    pub(crate) fn give_back(&self, connection: PooledConnection) {
        let Ok(runtime) = Handle::try_current() else { return };
        if connection.acquired_at.elapsed() >= MAX_REUSE {
            return;
        }
        let mut warm = self.warm.lock();
        let is_awaited = warm.waiters > 0;
        if !is_awaited && warm.idle.len() >= self.max_warm {
            drop(warm);
            return; // to the pool
        }
        warm.idle.push(IdleConnection {
            connection: Some(connection.connection),
            acquired_at: connection.acquired_at,
            last_used: Instant::now(),
            runtime: runtime.clone(),
        });
        if !std::mem::replace(&mut warm.has_reaper, true) {
            let reaper = Reaper {
                warm: Arc::clone(&self.warm),
                finished: false,
            };
            runtime.spawn(reaper.run());
        }
        drop(warm);
        if is_awaited {
            self.handed_over.notify_one();
        }
    }

    /// Makes all operations that wait for the pool retry at once.
    pub(crate) fn on_reconnect(&self) {
        self.reconnected.notify_waiters();
    }
}

/// Counts an operation among the waiters.
struct WaiterGuard<'a>(&'a Mutex<WarmConnections>);

impl Drop for WaiterGuard<'_> {
    fn drop(&mut self) {
        self.0.lock().waiters -= 1;
    }
}

/// Returns connections that are not used again to the pool, until none is left.
struct Reaper {
    warm: Arc<Mutex<WarmConnections>>,
    /// Another reaper may be running by the time a finished one is dropped.
    finished: bool,
}

impl Reaper {
    async fn run(mut self) {
        while !self.finished {
            tokio::time::sleep(IDLE_TIMEOUT).await;
            let mut warm = self.warm.lock();
            let timed_out = |idle: &mut IdleConnection| idle.last_used.elapsed() >= IDLE_TIMEOUT;
            let timed_out: Vec<_> = warm.idle.extract_if(.., timed_out).collect();
            let finished = warm.idle.is_empty();
            warm.has_reaper = !finished;
            drop(warm);
            drop(timed_out);
            self.finished = finished;
        }
    }
}

impl Drop for Reaper {
    /// Unfinished only if the runtime shuts down.
    fn drop(&mut self) {
        if !self.finished {
            let mut warm = self.warm.lock();
            warm.has_reaper = false;
            let idle = std::mem::take(&mut warm.idle);
            drop(warm);
            drop(idle);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use sqlx::postgres::PgPoolOptions;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::sync::Semaphore;
    use tokio::task::JoinHandle;
    use tokio::time::timeout;

    use super::*;

    /// The error message of a server that is starting up.
    const STARTING_UP: &[u8] = b"E\x00\x00\x00\x2dSFATAL\0VFATAL\0C57P03\0Mit is starting up\0\0";

    /// A pool for a server that refuses all connections, a task that waits for a connection, and a semaphore that gets a permit
    /// per connection attempt. The task returns whether the pool timed out.
    async fn acquire_from_refusing_server(
        acquire_timeout: Duration,
    ) -> (Arc<WarmPool>, JoinHandle<bool>, Arc<Semaphore>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let attempts = Arc::new(Semaphore::new(0));
        let counted = Arc::clone(&attempts);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                // A startup message begins with its length. The client may have disconnected already.
                if let Ok(length) = client.read_u32().await {
                    let mut startup = vec![0; length as usize - size_of::<u32>()];
                    client.read_exact(&mut startup).await.ok();
                    client.write_all(STARTING_UP).await.ok();
                }
                counted.add_permits(1);
            }
        });
        let url = format!("postgres://nobody@{address}/none?sslmode=disable");
        let pool = PgPoolOptions::new().acquire_timeout(acquire_timeout).connect_lazy(&url);
        let pool = Arc::new(WarmPool::shared(pool.unwrap()));
        let waiter = Arc::clone(&pool);
        let waiter = tokio::spawn(async move { matches!(waiter.acquire().await, Err(sqlx::Error::PoolTimedOut)) });
        (pool, waiter, attempts)
    }

    #[tokio::test]
    async fn a_waiting_operation_retries_at_once_on_reconnect() {
        let (pool, waiter, attempts) = acquire_from_refusing_server(Duration::from_secs(600)).await;
        // The next attempt is due in 1.28 s, and the third one in more than 8 s.
        attempts.acquire_many(8).await.unwrap().forget();
        pool.on_reconnect();
        let retries = timeout(Duration::from_secs(4), attempts.acquire_many(3)).await;
        retries
            .expect("three more attempts within a few milliseconds")
            .unwrap()
            .forget();
        waiter.abort();
    }

    #[tokio::test]
    async fn repeated_reconnects_do_not_extend_the_acquire_timeout() {
        let (pool, mut waiter, attempts) = acquire_from_refusing_server(Duration::from_millis(200)).await;
        let timed_out = loop {
            tokio::select! {
                timed_out = &mut waiter => break timed_out.unwrap(),
                attempt = attempts.acquire() => attempt.unwrap().forget(),
            }
            // This restarts the pool's own timeout.
            pool.on_reconnect();
        };
        assert!(timed_out);
    }
}

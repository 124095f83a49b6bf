//! A pool that reuses connections quickly and recovers quickly from an outage.
//!
//! sqlx pings every connection that is returned to its pool, which takes a round trip. A [`WarmPool`] keeps a connection for a
//! moment after use, and the next operation takes it without a ping. An operation that waits gets the first connection that another
//! one gives back, even while sqlx tries to open one for it: the server may refuse more connections, by the role's limit or its own.
//! One operation at a time opens a connection, so that a server that refuses is asked once, not by every operation.

use std::ops::{Deref, DerefMut};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgPoolOptions;
use sqlx::{ConnectOptions as _, Connection as _, PgPool, Postgres};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::config::{ConfigError, ConnectionString};
use super::deadline::deadline_in;
use super::login::{LoginGate, LoginRefused};
use super::server_choice::ServerChoice;
use super::server_error::refuses_login;

/// How long an unused connection is kept.
const IDLE_TIMEOUT: Duration = Duration::from_millis(20);

/// How long a connection may be reused before it is returned to the pool, which checks it and enforces its lifetime.
const MAX_REUSE: Duration = Duration::from_millis(100);

/// How long the server may take to answer a ping of a connection that was returned to the pool.
const PING_TIMEOUT: Duration = Duration::from_millis(500);

/// The time limit for the attempt to connect that determines why the pool timed out.
const DIAGNOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// How often a waiting operation looks for a connection that was returned to the pool: sqlx does not while it opens one.
const RECHECK: Duration = Duration::from_millis(5);

/// While connections are scarce, how long an operation waits for one of them before it lets sqlx open another.
const SCARCE_WAIT: Duration = Duration::from_millis(20);

/// How long connections count as scarce after an operation got one that it did not have to open.
const SCARCE_FOR: Duration = Duration::from_secs(1);

/// The error of [`WarmPool::acquire`] outside a tokio runtime.
#[derive(Debug, thiserror::Error)]
#[error("a connection is needed outside a tokio runtime")]
pub(crate) struct NoRuntime;

/// A pool, and those of its connections that were just used.
pub(crate) struct WarmPool {
    pub(crate) pool: PgPool,
    max_warm: usize,
    warm: Arc<Mutex<WarmConnections>>,
    /// How to choose a server before a connection is opened, if there is a choice.
    choice: Option<ServerChoice>,
    login: LoginGate,
    /// Held by the operation that opens a connection.
    opening: tokio::sync::Mutex<()>,
    /// Operations that wait for the pool start again: the server is back, or has refused the login.
    restart: Notify,
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
    /// For a pool of the application. Keeps at most 4 connections, and never all of them.
    pub(crate) fn shared(pool: PgPool) -> Self {
        let max_warm = max_warm_of_shared(&pool);
        Self::new(pool, max_warm, None)
    }

    /// Creates a pool for a connection string, without connecting. Must be called from inside a runtime.
    pub(crate) fn connect_lazy(
        connection_string: &ConnectionString,
        options: PgPoolOptions,
        transaction_pooler: bool,
    ) -> Result<Self, ConfigError> {
        let (choice, first) = ServerChoice::new(connection_string, transaction_pooler)?;
        let choice = connection_string.has_choice().then_some(choice);
        // The health of the bus tells what is slow or fails, once per change.
        let options = options.acquire_slow_threshold(Duration::MAX);
        let pool = options.connect_lazy_with(first);
        let max_warm = match pool.options().get_max_connections() {
            1 => 1, // nobody else uses it
            _ => max_warm_of_shared(&pool),
        };
        Ok(Self::new(pool, max_warm, choice))
    }

    fn new(pool: PgPool, max_warm: u32, choice: Option<ServerChoice>) -> Self {
        Self {
            pool,
            max_warm: max_warm as usize,
            warm: Arc::default(),
            choice,
            login: LoginGate::default(),
            opening: tokio::sync::Mutex::new(()),
            restart: Notify::new(),
            handed_over: Notify::new(),
        }
    }

    /// Takes a warm connection, or acquires one from the pool within the pool's acquire timeout.
    ///
    /// While the server refuses connections, the pool retries with delays that double up to a fifth of its timeout, so it may
    /// notice only seconds later that an outage is over. [`on_reconnect`](Self::on_reconnect) restarts these attempts. A login that the server
    /// has refused is not attempted again before a back-off has passed: until then, this returns the same [`LoginRefused`].
    ///
    /// Outside a tokio runtime, the error is a [`NoRuntime`]: sqlx would panic, and again when its pool is dropped.
    pub(crate) async fn acquire(&self) -> Result<PooledConnection, sqlx::Error> {
        if Handle::try_current().is_err() {
            return Err(sqlx::Error::Configuration(NoRuntime.into()));
        }
        let (_waiter, is_scarce) = {
            let mut warm = self.warm.lock();
            if let Some(connection) = warm.take() {
                return Ok(connection);
            }
            warm.waiters += 1;
            let is_scarce = warm.scarce_until.is_some_and(|until| Instant::now() < until);
            (WaiterGuard(&self.warm), is_scarce)
        };
        let deadline = deadline_in(self.pool.options().get_acquire_timeout());
        if is_scarce
            && self.pool.num_idle() == 0
            && let Ok(connection) = timeout(SCARCE_WAIT, self.handed_over()).await
        {
            return Ok(connection);
        }
        loop {
            let acquired = timeout_at(deadline, self.acquire_once()).await;
            if let Some(acquired) = acquired.map_err(|_| sqlx::Error::PoolTimedOut)? {
                return acquired;
            }
        }
    }

    async fn handed_over(&self) -> PooledConnection {
        loop {
            self.handed_over.notified().await;
            if let Some(connection) = self.warm.lock().take() {
                return connection;
            }
        }
    }

    /// Waits for a new connection, or one that is not in use any more. `None` if it has to start again.
    async fn acquire_once(&self) -> Option<Result<PooledConnection, sqlx::Error>> {
        let mut restart = pin!(self.restart.notified());
        if self.login.is_refused() {
            // Sessions that were opened before may go on.
            if let Some(connection) = self.try_idle().await {
                return Some(Ok(connection));
            }
            if let Err(refused) = self.login.try_attempt() {
                return Some(Err(refused.into()));
            }
        }
        let may_grow = self.pool.size() < self.pool.options().get_max_connections();
        let reused = tokio::select! {
            biased;
            acquired = self.open_or_reuse() => match acquired {
                Ok(acquired) => acquired,
                Err(error) => return Some(Err(self.refused(error))),
            },
            () = &mut restart => return None,
            connection = self.handed_over() => Acquired::Reused(connection),
        };
        Some(Ok(match reused {
            Acquired::New(connection) => connection,
            Acquired::Reused(connection) => {
                if may_grow {
                    self.warm.lock().scarce_until = Some(Instant::now() + SCARCE_FOR);
                }
                connection
            }
        }))
    }

    async fn open_or_reuse(&self) -> Result<Acquired, sqlx::Error> {
        // Where the application has all connections, operations queue for them one by one, as its own do.
        let _opening = if self.choice.is_some() || self.must_open() {
            Some(self.opening.lock().await)
        } else {
            None
        };
        let opens = self.must_open();
        if opens && let Some(choice) = &self.choice {
            choice.choose(&self.pool).await?;
        }
        let mut acquiring = pin!(self.pool.acquire());
        let mut choosing = pin!(async {
            match &self.choice {
                Some(choice) => choice.choose_again(&self.pool).await,
                None => std::future::pending().await,
            }
        });
        loop {
            tokio::select! {
                biased;
                acquired = &mut acquiring => {
                    let connection = acquired?;
                    if opens {
                        self.login.accepted();
                    }
                    return Ok(Acquired::New(PooledConnection::new(connection)));
                }
                error = &mut choosing => return Err(error),
                () = sleep(RECHECK) => if let Some(connection) = self.try_idle().await {
                    return Ok(Acquired::Reused(connection));
                }
            }
        }
    }

    /// Returns why the pool could not connect. While a server refuses connections, the pool retries, and finally reports only a timeout.
    pub(crate) async fn diagnose(&self) -> sqlx::Error {
        let attempt = async {
            match &self.choice {
                Some(choice) => choice
                    .try_choose(&self.pool)
                    .await
                    .map_err(|error| sqlx::Error::Io(std::io::Error::other(error))),
                None => self.pool.connect_options().connect().await.map(drop),
            }
        };
        match timeout(DIAGNOSE_TIMEOUT, attempt).await {
            Ok(Err(error)) => error,
            Ok(Ok(())) | Err(_) => sqlx::Error::PoolTimedOut,
        }
    }

    fn must_open(&self) -> bool {
        self.pool.num_idle() == 0 && self.pool.size() < self.pool.options().get_max_connections()
    }

    /// If the server has refused the login, remembers it, and makes operations that wait return it, too.
    fn refused(&self, error: sqlx::Error) -> sqlx::Error {
        let refused = match &error {
            sqlx::Error::Database(refusal) if refusal.code().is_some_and(|code| refuses_login(&code)) => {
                LoginRefused::new(refusal.message())
            }
            sqlx::Error::Configuration(refusal) => match refusal.downcast_ref::<LoginRefused>() {
                Some(refused) => refused.clone(),
                None => return error,
            },
            _ => return error,
        };
        self.login.refused(refused.clone());
        self.restart.notify_waiters();
        refused.into()
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
        let has_reaper = std::mem::replace(&mut warm.has_reaper, true);
        drop(warm);
        if !has_reaper {
            let reaper = Reaper {
                warm: Arc::clone(&self.warm),
                finished: false,
            };
            // Without the lock: a runtime that shuts down drops the reaper here.
            runtime.spawn(reaper.run());
        }
        if is_awaited {
            self.handed_over.notify_one();
        }
    }

    /// Makes all operations that wait for the pool retry at once.
    pub(crate) fn on_reconnect(&self) {
        self.login.retry_now();
        self.restart.notify_waiters();
    }
}

/// Never all connections: others wait for them, too.
fn max_warm_of_shared(pool: &PgPool) -> u32 {
    pool.options().get_max_connections().saturating_sub(1).min(4)
}

enum Acquired {
    New(PooledConnection),
    /// One that another operation had.
    Reused(PooledConnection),
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

    #[test]
    fn a_connection_may_be_given_back_while_the_runtime_shuts_down() {
        let server = throwaway_postgres::Server::start().unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let entered = runtime.handle().clone();
        let (pool, mut connection) = runtime.block_on(async {
            let pool = WarmPool::shared(PgPoolOptions::new().connect_lazy(&server.url()).unwrap());
            let connection = pool.acquire().await.unwrap();
            (pool, connection)
        });
        drop(runtime);
        let (returned, has_returned) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let _entered = entered.enter();
            connection.acquired_at = Instant::now();
            // The runtime drops the reaper instead of running it.
            pool.give_back(connection);
            let warm = pool.warm.lock();
            returned.send((warm.idle.len(), warm.has_reaper)).unwrap();
        });
        let state = has_returned.recv_timeout(Duration::from_secs(30));
        assert_eq!(state, Ok((0, false)), "nothing is kept, and nothing hangs");
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

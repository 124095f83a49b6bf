//! Connections of a pool, for operations that follow each other closely and do not wait long for a server that is back.
//!
//! A pool tries every connection that is given back to it, which costs a round trip. So one that has just done its work stays here
//! for a moment: the next operation takes it as it is. Somebody else who waits for a connection comes first.

use std::future::poll_fn;
use std::ops::{Deref, DerefMut};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use sqlx::pool::PoolConnection;
use sqlx::{PgPool, Postgres};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// How long a connection waits here for the next operation.
const WARM_FOR: Duration = Duration::from_millis(20);

/// How long operations hand a connection on to each other, before the pool may look after it.
const KEEP: Duration = Duration::from_millis(100);

/// A pool, and those of its connections that have just been used.
pub(crate) struct WarmPool {
    pub(crate) pool: PgPool,
    most_warm: usize,
    warm: Arc<Mutex<Warm>>,
    back: Notify,
}

#[derive(Default)]
struct Warm {
    connections: Vec<Resting>,
    /// Operations that wait for the pool.
    waiting: usize,
    /// Whether somebody looks after `connections`.
    is_tended: bool,
}

struct Resting {
    connection: Option<PoolConnection<Postgres>>,
    taken_from_pool: Instant,
    used: Instant,
    runtime: Handle,
}

impl Drop for Resting {
    fn drop(&mut self) {
        // A connection goes back to its pool by a task, wherever this is called.
        let _runtime = self.runtime.enter();
        self.connection = None;
    }
}

/// A connection that an operation uses. Dropped, it goes back to the pool, which tries it.
pub(crate) struct PooledConnection {
    connection: PoolConnection<Postgres>,
    taken_from_pool: Instant,
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
    /// Of a pool that others use, too: one connection of it is never kept here.
    pub(crate) fn shared(pool: PgPool) -> Self {
        let most_warm = pool.options().get_max_connections().saturating_sub(1).min(4);
        Self::new(pool, most_warm as usize)
    }

    /// Of a pool that nobody else uses.
    pub(crate) fn exclusive(pool: PgPool) -> Self {
        let most_warm = pool.options().get_max_connections();
        Self::new(pool, most_warm as usize)
    }

    fn new(pool: PgPool, most_warm: usize) -> Self {
        Self {
            pool,
            most_warm,
            warm: Arc::default(),
            back: Notify::new(),
        }
    }

    /// A connection. While the server refuses, the pool tries again after pauses that double, up to a fifth of its time limit; so
    /// after an outage a server may have been back for seconds before it is asked. Whoever waits then begins again when
    /// [`on_reconnect`](Self::on_reconnect).
    pub(crate) async fn acquire(&self) -> Result<PooledConnection, sqlx::Error> {
        let _waiting = {
            let mut warm = self.warm.lock();
            if let Some(mut resting) = warm.connections.pop()
                && let Some(connection) = resting.connection.take()
            {
                return Ok(PooledConnection {
                    connection,
                    taken_from_pool: resting.taken_from_pool,
                });
            }
            warm.waiting += 1;
            WaiterGuard(&self.warm)
        };
        let limit = Instant::now() + self.pool.options().get_acquire_timeout();
        loop {
            let mut back = pin!(self.back.notified());
            let mut acquiring = pin!(self.pool.acquire());
            let acquired = poll_fn(|context| {
                if let Poll::Ready(acquired) = acquiring.as_mut().poll(context) {
                    return Poll::Ready(Some(acquired));
                }
                back.as_mut().poll(context).map(|()| None)
            });
            match timeout_at(limit, acquired).await {
                Ok(Some(acquired)) => {
                    return acquired.map(|connection| PooledConnection {
                        connection,
                        taken_from_pool: Instant::now(),
                    });
                }
                Ok(None) => {}
                Err(_) => return Err(sqlx::Error::PoolTimedOut),
            }
        }
    }

    /// Gives back a connection on which all went well, and nothing is under way.
    pub(crate) fn give_back(&self, connection: PooledConnection) {
        let Ok(runtime) = Handle::try_current() else { return };
        if connection.taken_from_pool.elapsed() >= KEEP {
            return;
        }
        let mut warm = self.warm.lock();
        if warm.waiting > 0 || warm.connections.len() >= self.most_warm {
            drop(warm);
            return; // to the pool
        }
        warm.connections.push(Resting {
            connection: Some(connection.connection),
            taken_from_pool: connection.taken_from_pool,
            used: Instant::now(),
            runtime: runtime.clone(),
        });
        if !std::mem::replace(&mut warm.is_tended, true) {
            runtime.spawn(tend(ReaperState {
                warm: Arc::clone(&self.warm),
                over: false,
            }));
        }
    }

    /// Whoever waits for a connection tries at once.
    pub(crate) fn on_reconnect(&self) {
        self.back.notify_waiters();
    }
}

/// Counted among those who wait.
struct WaiterGuard<'a>(&'a Mutex<Warm>);

impl Drop for WaiterGuard<'_> {
    fn drop(&mut self) {
        self.0.lock().waiting -= 1;
    }
}

/// Sees to it that connections which nobody takes find their way back to the pool.
struct ReaperState {
    warm: Arc<Mutex<Warm>>,
    /// Another one may be tending already.
    over: bool,
}

impl Drop for ReaperState {
    /// Before it is over only if the runtime ends.
    fn drop(&mut self) {
        if !self.over {
            let mut warm = self.warm.lock();
            warm.is_tended = false;
            let left = std::mem::take(&mut warm.connections);
            drop(warm);
            drop(left);
        }
    }
}

async fn tend(mut tended: ReaperState) {
    while !tended.over {
        tokio::time::sleep(WARM_FOR).await;
        let mut warm = tended.warm.lock();
        let idle = |resting: &mut Resting| resting.used.elapsed() >= WARM_FOR;
        let idle: Vec<_> = warm.connections.extract_if(.., idle).collect();
        let over = warm.connections.is_empty();
        warm.is_tended = !over;
        drop(warm);
        drop(idle);
        tended.over = over;
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

    /// What a server says that is starting up.
    const NOT_YET: &[u8] = b"E\x00\x00\x00\x2dSFATAL\0VFATAL\0C57P03\0Mit is starting up\0\0";

    /// A server that refuses whoever connects, a pool for it, and somebody who waits for a connection. Each attempt is a permit.
    async fn waiting_in_vain(acquire_timeout: Duration) -> (Arc<WarmPool>, JoinHandle<bool>, Arc<Semaphore>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let attempts = Arc::new(Semaphore::new(0));
        let counted = Arc::clone(&attempts);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                // Its greeting begins with the length. It may be gone already.
                if let Ok(length) = client.read_u32().await {
                    let mut greeting = vec![0; length as usize - size_of::<u32>()];
                    client.read_exact(&mut greeting).await.ok();
                    client.write_all(NOT_YET).await.ok();
                }
                counted.add_permits(1);
            }
        });
        let url = format!("postgres://nobody@{address}/none?sslmode=disable");
        let pool = PgPoolOptions::new().acquire_timeout(acquire_timeout).connect_lazy(&url);
        let connections = Arc::new(WarmPool::shared(pool.unwrap()));
        let waiting = Arc::clone(&connections);
        let waiting = tokio::spawn(async move { matches!(waiting.acquire().await, Err(sqlx::Error::PoolTimedOut)) });
        (connections, waiting, attempts)
    }

    #[tokio::test]
    async fn who_waits_for_a_connection_tries_at_once_when_the_server_is_back() {
        let (connections, waiting, attempts) = waiting_in_vain(Duration::from_secs(600)).await;
        // The next one would be a pause of 1.28 s away, and the third more than 8 s.
        attempts.acquire_many(8).await.unwrap().forget();
        connections.on_reconnect();
        let direct_append = timeout(Duration::from_secs(4), attempts.acquire_many(3)).await;
        direct_append
            .expect("three more attempts, some milliseconds apart")
            .unwrap()
            .forget();
        waiting.abort();
    }

    #[tokio::test]
    async fn who_is_told_so_again_and_again_waits_no_longer_than_the_limit() {
        let (connections, mut waiting, attempts) = waiting_in_vain(Duration::from_millis(200)).await;
        let timed_out = loop {
            tokio::select! {
                timed_out = &mut waiting => break timed_out.unwrap(),
                attempt = attempts.acquire() => attempt.unwrap().forget(),
            }
            // Each time the pool begins again, and with it its own limit.
            connections.on_reconnect();
        };
        assert!(timed_out);
    }
}

//! Connections of the pool, without waiting long for a server that is back.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use sqlx::pool::PoolConnection;
use sqlx::{PgPool, Postgres};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// A pool whose attempts to connect can be begun anew.
pub(super) struct Connections {
    pub(super) pool: PgPool,
    back: Notify,
}

impl Connections {
    pub(super) fn new(pool: PgPool) -> Self {
        Self {
            pool,
            back: Notify::new(),
        }
    }

    /// A connection. While the server refuses, the pool tries again after pauses that double, up to a fifth of its time limit; so
    /// after an outage a server may have been back for seconds before it is asked. Whoever waits then begins again when
    /// [`server_is_back`](Self::server_is_back).
    pub(super) async fn acquire(&self) -> Result<PoolConnection<Postgres>, sqlx::Error> {
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
                Ok(Some(acquired)) => return acquired,
                Ok(None) => {}
                Err(_) => return Err(sqlx::Error::PoolTimedOut),
            }
        }
    }

    /// Whoever waits for a connection tries at once.
    pub(super) fn server_is_back(&self) {
        self.back.notify_waiters();
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
    async fn waiting_in_vain(acquire_timeout: Duration) -> (Arc<Connections>, JoinHandle<bool>, Arc<Semaphore>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let attempts = Arc::new(Semaphore::new(0));
        let counted = Arc::clone(&attempts);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                // The client may be gone already.
                client.read(&mut [0; 512]).await.ok();
                client.write_all(NOT_YET).await.ok();
                counted.add_permits(1);
            }
        });
        let url = format!("postgres://nobody@{address}/none?sslmode=disable");
        let pool = PgPoolOptions::new().acquire_timeout(acquire_timeout).connect_lazy(&url);
        let connections = Arc::new(Connections::new(pool.unwrap()));
        let waiting = Arc::clone(&connections);
        let waiting = tokio::spawn(async move { matches!(waiting.acquire().await, Err(sqlx::Error::PoolTimedOut)) });
        (connections, waiting, attempts)
    }

    #[tokio::test]
    async fn who_waits_for_a_connection_tries_at_once_when_the_server_is_back() {
        let (connections, waiting, attempts) = waiting_in_vain(Duration::from_secs(600)).await;
        // The next one would be a pause of 1.28 s away, and the third more than 8 s.
        attempts.acquire_many(8).await.unwrap().forget();
        connections.server_is_back();
        let at_once = timeout(Duration::from_secs(4), attempts.acquire_many(3)).await;
        at_once
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
            connections.server_is_back();
        };
        assert!(timed_out);
    }
}

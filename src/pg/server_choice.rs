//! Chooses the server that a pool's next connection leads to: a pool of sqlx has one host.

use std::time::Duration;

use sqlx::PgPool;
use sqlx::postgres::PgConnectOptions;
use tokio::time::{sleep, timeout};

use super::backoff::Retry;
use super::config::{ConfigError, ConnectionString, ListenConfig, PoolOptions};
use super::connect::{connect, hosts};
use super::login::LoginRefused;
use super::server_error::ServerError;

/// How long an operation waits for a connection before another server is looked for.
const STALLED_AFTER: Duration = Duration::from_millis(100);

/// The maximum delay between two searches.
const MAX_DELAY: Duration = Duration::from_millis(500);

/// The servers of a connection string.
pub(crate) struct ServerChoice {
    config: ListenConfig,
    options: PoolOptions,
}

impl ServerChoice {
    /// Also returns the options for a connection to the first host.
    pub(crate) fn new(
        connection_string: &ConnectionString,
        transaction_pooler: bool,
    ) -> Result<(Self, PgConnectOptions), ConfigError> {
        let config = connection_string.listen_config()?;
        let mut options = connection_string.pool_options()?;
        if transaction_pooler {
            options = options.without_statement_cache();
        }
        let first = hosts(&config.postgres);
        let first = first.first().ok_or_else(|| ConfigError::new("no host is set"))?;
        let first = options.to(first);
        Ok((Self { config, options }, first))
    }

    /// Makes the pool's next connection lead to the first server that accepts a session and meets `target_session_attrs`. Tries again until there
    /// is one, or one refuses the login.
    pub(crate) async fn choose(&self, pool: &PgPool) -> Result<(), sqlx::Error> {
        let mut retry = Retry::new(Duration::from_millis(20), MAX_DELAY);
        loop {
            match self.try_choose(pool).await {
                Ok(()) => return Ok(()),
                Err(error) if error.refuses_login() => return Err(LoginRefused::new(&error.to_string()).into()),
                Err(error) => tracing::debug!(%error, "no server of the connection string accepts a session"),
            }
            retry.wait().await;
        }
    }

    /// Repeats the choice while an operation waits, perhaps for a connection to a server that is gone. Returns if a server refuses the login.
    pub(crate) async fn choose_again(&self, pool: &PgPool) -> sqlx::Error {
        let mut delay = STALLED_AFTER;
        loop {
            sleep(delay).await;
            if let Err(refused) = self.choose(pool).await {
                return refused;
            }
            delay = (delay * 2).min(MAX_DELAY);
        }
    }

    pub(super) async fn try_choose(&self, pool: &PgPool) -> Result<(), ServerError> {
        let limit = pool.options().get_acquire_timeout();
        let connected = timeout(limit, connect(&self.config, limit)).await;
        let connected = connected.map_err(|_| ServerError::timeout(limit))??;
        pool.set_connect_options(self.options.to(&connected.address));
        connected.close().await;
        Ok(())
    }
}

//! Errors from tokio-postgres.

use core::error::Error as _;
use core::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio_postgres::error::SqlState;

/// An error from tokio-postgres. Its message includes the messages of all its sources.
///
/// ```
/// use doorbell::listen::{ListenError, ListenMultiplexer};
///
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// match ListenMultiplexer::connect("postgres://localhost:1/app?connect_timeout=2").await {
///     Err(ListenError::Connect(error)) => {
///         assert_eq!(error.sqlstate(), None); // no server answered
///         assert!(error.to_string().starts_with("error connecting to server: "));
///     }
///     _ => unreachable!(),
/// }
/// # });
/// ```
#[derive(Clone, Debug, Error)]
#[error("{text}")]
pub struct ServerError {
    text: String,
    sqlstate: Option<SqlState>,
    #[source]
    source: Option<Arc<tokio_postgres::Error>>,
}

impl ServerError {
    /// The SQLSTATE code; `None` if the error did not come from the server.
    pub fn sqlstate(&self) -> Option<&str> {
        self.sqlstate.as_ref().map(SqlState::code)
    }

    pub(crate) fn is(&self, code: &SqlState) -> bool {
        self.sqlstate.as_ref() == Some(code)
    }

    /// Returns `true` if a person must change something (a password, a right, the database) before the server accepts the login.
    pub(crate) fn refuses_login(&self) -> bool {
        self.sqlstate().is_some_and(refuses_login)
    }

    /// The error for a server that did not answer in time.
    pub(crate) fn timeout(limit: Duration) -> Self {
        Self {
            text: format!("no answer within {limit:?}"),
            sqlstate: None,
            source: None,
        }
    }

    /// The error for a connection that ended without one.
    pub(crate) fn closed() -> Self {
        Self {
            text: "the server closed the connection".to_owned(),
            sqlstate: None,
            source: None,
        }
    }

    /// The error for a peer that completes a query without the row that every PostgreSQL server returns.
    pub(crate) fn no_row() -> Self {
        Self {
            text: "the server answered the first query without a row, as PostgreSQL never does".to_owned(),
            sqlstate: None,
            source: None,
        }
    }

    /// The error for a notice that reports a failure.
    pub(crate) fn notice(notice: &tokio_postgres::error::DbError) -> Self {
        Self {
            text: notice.message().to_owned(),
            sqlstate: Some(notice.code().clone()),
            source: None,
        }
    }
}

impl From<std::io::Error> for ServerError {
    fn from(error: std::io::Error) -> Self {
        Self {
            text: format!("error connecting to server: {error}"),
            sqlstate: None,
            source: None,
        }
    }
}

/// Whether the SQLSTATE of a failed attempt to connect means that a person must change something before another one can succeed.
pub(crate) fn refuses_login(sqlstate: &str) -> bool {
    // 28: authorization; 3D: no such database; 42: no permission; 0A: not supported.
    ["28", "3D", "42", "0A"].iter().any(|class| sqlstate.starts_with(class))
}

impl From<tokio_postgres::Error> for ServerError {
    fn from(error: tokio_postgres::Error) -> Self {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            // Writing to a string cannot fail.
            let _ = write!(text, ": {error}");
            cause = error.source();
        }
        Self {
            text,
            sqlstate: error.code().cloned(),
            source: Some(Arc::new(error)),
        }
    }
}

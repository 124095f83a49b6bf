//! What the server said when it refused.

use core::error::Error as _;
use core::fmt::Write as _;
use std::sync::Arc;

use thiserror::Error;
use tokio_postgres::error::SqlState;

/// What tokio-postgres said, with everything below it in the text.
///
/// ```
/// use doorbell::listen::{ListenError, ListenMultiplexer};
///
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// match ListenMultiplexer::connect("postgres://localhost:1/app?connect_timeout=2").await {
///     Err(ListenError::Connect(error)) => {
///         assert_eq!(error.sqlstate(), None); // it never came to talking with the server
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
    /// The SQLSTATE, if the server itself said no.
    pub fn sqlstate(&self) -> Option<&str> {
        self.sqlstate.as_ref().map(SqlState::code)
    }

    pub(crate) fn is(&self, code: &SqlState) -> bool {
        self.sqlstate.as_ref() == Some(code)
    }

    /// An end without an error: the server closed the connection.
    pub(crate) fn closed() -> Self {
        Self {
            text: "the server closed the connection".to_owned(),
            sqlstate: None,
            source: None,
        }
    }

    /// A warning of the server that is an error to us.
    pub(crate) fn notice(notice: &tokio_postgres::error::DbError) -> Self {
        Self {
            text: notice.message().to_owned(),
            sqlstate: Some(notice.code().clone()),
            source: None,
        }
    }
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

//! A connection that runs one query at a time, and passes on the messages that arrive meanwhile.

use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::Poll;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tokio_postgres::error::Severity;
use tokio_postgres::{AsyncMessage, Client, SimpleQueryMessage};

use super::dispatch::Dispatcher;
use super::error::{ListenError, ServerError};
use crate::pg::connect::RawConnection;
use crate::pg::deadline::deadline_in;

pub(super) struct ListenConnection {
    client: Client,
    raw: RawConnection,
    /// How long the server may send nothing while a query is pending.
    deadline: Duration,
}

/// The error of a failed query.
pub(super) enum QueryError {
    /// The server refused it; the session continues.
    Refused(ServerError),
    /// The session is lost.
    Lost(ListenError),
}

impl ListenConnection {
    pub(super) fn new(client: Client, raw: RawConnection, deadline: Duration) -> Self {
        Self { client, raw, deadline }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Runs `sql` as one implicit transaction.
    ///
    /// The deadline restarts with every message: while notifications arrive, the server is alive and the answer is behind them.
    pub(super) async fn query(
        &mut self,
        dispatcher: &mut Dispatcher,
        what: &'static str,
        sql: &str,
    ) -> Result<Vec<SimpleQueryMessage>, QueryError> {
        let Self { client, raw, deadline } = self;
        let mut answer = pin!(client.simple_query(sql));
        let mut expired = pin!(sleep(*deadline));
        dispatcher.dispatch_deferred();
        loop {
            tokio::select! {
                answered = &mut answer => {
                    dispatcher.record_received();
                    return answered.map_err(query_error);
                }
                message = next(raw) => {
                    let message = message.map_err(QueryError::Lost)?;
                    // The answer may have arrived together with this message, ahead of it. Then the caller handles it first.
                    if let Poll::Ready(answered) = poll_once(answer.as_mut()).await {
                        dispatcher.defer(message);
                        return answered.map_err(query_error);
                    }
                    dispatcher.dispatch(message);
                    dispatcher.give_turn().await;
                    expired.as_mut().reset(deadline_in(*deadline));
                }
                () = &mut expired => {
                    return Err(QueryError::Lost(ListenError::Timeout { what, after: *deadline }));
                }
            }
        }
    }

    /// Waits for the next message. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<AsyncMessage, ListenError> {
        next(&mut self.raw).await
    }

    /// Returns the next message, if it has already arrived.
    pub(super) async fn try_next(&mut self) -> Option<Result<AsyncMessage, ListenError>> {
        match poll_once(pin!(next(&mut self.raw))).await {
            Poll::Ready(message) => Some(message),
            Poll::Pending => None,
        }
    }

    /// Terminates the session, and waits at most `limit` for the server to close the connection.
    pub(super) async fn close(self, limit: Duration) {
        let Self { client, mut raw, .. } = self;
        // tokio-postgres sends Terminate once the client is dropped.
        drop(client);
        let closed = async { while next(&mut raw).await.is_ok() {} };
        // A dead connection never closes: the time limit is expected.
        let _ = timeout(limit, closed).await;
    }
}

async fn next(raw: &mut RawConnection) -> Result<AsyncMessage, ListenError> {
    match poll_fn(|cx| raw.poll_message(cx)).await {
        Some(Ok(message)) => Ok(message),
        Some(Err(error)) => Err(ListenError::Lost(error.into())),
        None => Err(ListenError::Lost(ServerError::closed())),
    }
}

fn query_error(error: tokio_postgres::Error) -> QueryError {
    let refused = error
        .as_db_error()
        .is_some_and(|db| !matches!(db.parsed_severity(), Some(Severity::Fatal | Severity::Panic)));
    let error = ServerError::from(error);
    if refused {
        QueryError::Refused(error)
    } else {
        QueryError::Lost(ListenError::Lost(error))
    }
}

async fn poll_once<F: Future>(mut future: core::pin::Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

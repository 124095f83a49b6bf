//! The wire: asks the server one thing at a time, and passes on what arrives meanwhile.

use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::error::Severity;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{AsyncMessage, Client, Connection, SimpleQueryMessage, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::dispatch::Dispatcher;
use super::error::{ListenError, ServerError};
use crate::pg::config::ListenConfig;

pub(super) type Wire = Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

/// Opens a session. Nothing is received until the connection is polled.
pub(super) async fn connect(config: &ListenConfig) -> Result<(Client, Wire), ListenError> {
    let connected = config.postgres.connect(config.tls.connector()).await;
    connected.map_err(|error| ListenError::Connect(error.into()))
}

pub(super) struct ListenConnection {
    client: Client,
    wire: Wire,
    /// How long the server may be silent when asked something.
    deadline: Duration,
}

/// Why the server did not do it.
pub(super) enum AskError {
    /// It said no; the session goes on.
    Refused(ServerError),
    /// There is no session any more.
    Lost(ListenError),
}

impl ListenConnection {
    pub(super) fn new(client: Client, wire: Wire, deadline: Duration) -> Self {
        Self { client, wire, deadline }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Has the server run `sql`, as one implicit transaction.
    ///
    /// The time limit is for silence: as long as notifications keep coming, the server lives and the answer is behind them.
    pub(super) async fn ask(
        &mut self,
        dispatcher: &mut Dispatcher,
        what: &'static str,
        sql: &str,
    ) -> Result<Vec<SimpleQueryMessage>, AskError> {
        let Self { client, wire, deadline } = self;
        let mut answer = pin!(client.simple_query(sql));
        let mut silence = pin!(sleep(*deadline));
        dispatcher.take_held();
        loop {
            tokio::select! {
                answered = &mut answer => {
                    dispatcher.received();
                    return answered.map_err(asked);
                }
                message = next(wire) => {
                    let message = message.map_err(AskError::Lost)?;
                    // The answer may have come with this message and before it. Then who asked has to know it first.
                    if let Poll::Ready(answered) = poll_once(answer.as_mut()).await {
                        dispatcher.hold(message);
                        return answered.map_err(asked);
                    }
                    dispatcher.take(message);
                    silence.as_mut().reset(Instant::now() + *deadline);
                }
                () = &mut silence => {
                    return Err(AskError::Lost(ListenError::Timeout { what, after: *deadline }));
                }
            }
        }
    }

    /// Waits for the next message. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<AsyncMessage, ListenError> {
        next(&mut self.wire).await
    }

    /// The next message, if it is there already.
    pub(super) async fn try_next(&mut self) -> Option<Result<AsyncMessage, ListenError>> {
        match poll_once(pin!(next(&mut self.wire))).await {
            Poll::Ready(message) => Some(message),
            Poll::Pending => None,
        }
    }

    /// Says goodbye, and waits a moment for the other end to have heard it.
    pub(super) async fn close(self, patience: Duration) {
        let Self { client, mut wire, .. } = self;
        // The wire sends a farewell once nobody can ask any more.
        drop(client);
        let ended = async { while next(&mut wire).await.is_ok() {} };
        // On a dead connection there is nobody to hear it.
        let _ = timeout(patience, ended).await;
    }
}

async fn next(wire: &mut Wire) -> Result<AsyncMessage, ListenError> {
    match poll_fn(|cx| wire.poll_message(cx)).await {
        Some(Ok(message)) => Ok(message),
        Some(Err(error)) => Err(ListenError::Lost(error.into())),
        None => Err(ListenError::Lost(ServerError::closed())),
    }
}

fn asked(error: tokio_postgres::Error) -> AskError {
    let refused = error
        .as_db_error()
        .is_some_and(|db| !matches!(db.parsed_severity(), Some(Severity::Fatal | Severity::Panic)));
    let error = ServerError::from(error);
    if refused {
        AskError::Refused(error)
    } else {
        AskError::Lost(ListenError::Lost(error))
    }
}

async fn poll_once<F: Future>(mut future: core::pin::Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

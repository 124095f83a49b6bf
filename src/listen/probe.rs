//! Whether notifications arrive at all: one to ourselves, at each new connection.
//!
//! A pooler in transaction mode accepts LISTEN and delivers nothing, without any error. Over a direct connection the session
//! notifies itself. Through a pooler that would prove nothing, since it passes on what a backend says *during* a statement;
//! there, the notification comes from a second, short connection, and has to find the session idle.

use core::future::{Future, pending};
use core::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::builder::Settings;
use super::connection::{AskError, ListenConnection, connect};
use super::dispatch::Dispatcher;
use super::error::ListenError;
use super::session::to_lost;
use crate::pg::config::ListenConfig;
use crate::pg::quote::{push_identifier, push_literal};

/// How long the notification may take once it has been sent.
const ARRIVAL: Duration = Duration::from_secs(2);
/// When a probe failed or could not be sent, this is when the next one is.
const AGAIN: Duration = Duration::from_secs(30);

pub(super) struct Probe {
    config: ListenConfig,
    patience: Duration,
    pooled: bool,
    failed: bool,
    channel: String,
    nonce: String,
    state: State,
}

enum State {
    /// Switched off, or done.
    Resting,
    DueAt(Instant),
    /// The second connection is sending it.
    Sending(Pin<Box<dyn Future<Output = Result<(), ListenError>> + Send>>),
    /// Sent; to arrive before.
    Expected(Instant),
}

pub(super) enum Outcome {
    Arrived {
        after_failure: bool,
    },
    NotArrived,
    /// It could not be sent, which proves nothing.
    NotSent(ListenError),
}

impl Probe {
    pub(super) fn new(settings: &Settings, config: ListenConfig, pooled: bool) -> Self {
        Self {
            config,
            patience: settings.connect_timeout,
            pooled,
            failed: false,
            channel: format!("doorbell_probe_{:016x}", fastrand::u64(..)),
            nonce: String::new(),
            state: if settings.self_probe {
                State::DueAt(Instant::now())
            } else {
                State::Resting
            },
        }
    }

    pub(super) fn is_enabled(&self) -> bool {
        !matches!(self.state, State::Resting)
    }

    /// Whether the latest one did not arrive.
    pub(super) fn has_failed(&self) -> bool {
        self.failed
    }

    pub(super) fn due(&self) -> Option<Instant> {
        match self.state {
            State::DueAt(due) | State::Expected(due) => Some(due),
            State::Resting | State::Sending(_) => None,
        }
    }

    /// Does what is due.
    pub(super) async fn advance(
        &mut self,
        connection: &mut ListenConnection,
        dispatcher: &mut Dispatcher,
    ) -> Result<Option<Outcome>, ListenError> {
        let arrived = dispatcher.probe_arrived();
        match self.state {
            State::DueAt(due) if due <= Instant::now() => self.send(connection, dispatcher).await,
            State::Expected(_) | State::Sending(_) if arrived => {
                self.put_away(connection, dispatcher).await?;
                self.state = State::Resting;
                let after_failure = std::mem::take(&mut self.failed);
                Ok(Some(Outcome::Arrived { after_failure }))
            }
            State::Expected(due) if due <= Instant::now() => {
                self.put_away(connection, dispatcher).await?;
                self.state = State::DueAt(Instant::now() + AGAIN);
                self.failed = true;
                Ok(Some(Outcome::NotArrived))
            }
            _ => Ok(None),
        }
    }

    async fn send(
        &mut self,
        connection: &mut ListenConnection,
        dispatcher: &mut Dispatcher,
    ) -> Result<Option<Outcome>, ListenError> {
        let mut sql = "LISTEN ".to_owned();
        push_identifier(&mut sql, &self.channel);
        self.nonce = format!("{:016x}", fastrand::u64(..));
        dispatcher.expect(&self.channel, &self.nonce);
        match connection.ask(dispatcher, "the probe's LISTEN", &sql).await {
            Ok(_) => {}
            Err(AskError::Refused(error)) => return Ok(Some(self.not_sent(ListenError::Notify(error)))),
            Err(AskError::Lost(error)) => return Err(error),
        }
        let notify = self.notify();
        if self.pooled {
            self.state = State::Sending(Box::pin(send_elsewhere(self.config.clone(), notify, self.patience)));
            return Ok(None);
        }
        match connection.ask(dispatcher, "the probe's NOTIFY", &notify).await {
            Ok(_) => {
                self.state = State::Expected(Instant::now() + ARRIVAL);
                // It usually comes before the answer.
                Box::pin(self.advance(connection, dispatcher)).await
            }
            Err(AskError::Refused(error)) => Ok(Some(self.not_sent(ListenError::Notify(error)))),
            Err(AskError::Lost(error)) => Err(error),
        }
    }

    fn notify(&self) -> String {
        let mut sql = "SET LOCAL lock_timeout = 2000; SELECT pg_catalog.pg_notify(".to_owned();
        push_literal(&mut sql, &self.channel);
        sql.push_str(", ");
        push_literal(&mut sql, &self.nonce);
        sql.push(')');
        sql
    }

    async fn put_away(
        &mut self,
        connection: &mut ListenConnection,
        dispatcher: &mut Dispatcher,
    ) -> Result<(), ListenError> {
        let mut sql = "UNLISTEN ".to_owned();
        push_identifier(&mut sql, &self.channel);
        dispatcher.forget_probe();
        connection
            .ask(dispatcher, "the probe's UNLISTEN", &sql)
            .await
            .map_err(to_lost)?;
        Ok(())
    }

    fn not_sent(&mut self, error: ListenError) -> Outcome {
        self.state = State::DueAt(Instant::now() + AGAIN);
        Outcome::NotSent(error)
    }

    /// Waits until the second connection has done its part; for ever if there is none. Cancel-safe.
    pub(super) async fn sent(&mut self) -> Result<(), ListenError> {
        match &mut self.state {
            State::Sending(sending) => sending.await,
            _ => pending().await,
        }
    }

    /// The second connection has done its part.
    pub(super) fn was_sent(&mut self, sent: Result<(), ListenError>) -> Option<Outcome> {
        match sent {
            Ok(()) => {
                self.state = State::Expected(Instant::now() + ARRIVAL);
                None
            }
            Err(error) => Some(self.not_sent(error)),
        }
    }
}

/// Sends it from another session.
async fn send_elsewhere(config: ListenConfig, sql: String, patience: Duration) -> Result<(), ListenError> {
    let sending = async {
        let (client, wire) = connect(&config).await?;
        let mut wire = core::pin::pin!(wire);
        let sent = tokio::select! {
            sent = client.simple_query(&sql) => sent.map(drop),
            ended = &mut wire => ended,
        };
        sent.map_err(|error| ListenError::Notify(error.into()))?;
        drop(client);
        // The farewell; the notification is on its way in any case.
        drop(wire.await);
        Ok(())
    };
    let timed_out = |_| ListenError::Timeout {
        what: "the probe's connection",
        after: patience,
    };
    timeout(patience, sending).await.map_err(timed_out)?
}

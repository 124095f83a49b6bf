//! Checks on each new connection that notifications arrive, by sending one to itself.
//!
//! A pooler in transaction mode accepts LISTEN and delivers nothing, without any error. Over a direct connection the session
//! notifies itself. Through a pooler that would prove nothing, because a pooler passes on what a backend sends *during* a
//! statement. There, a second, short connection sends the notification, which must reach the session while it is idle.

use core::future::{Future, pending};
use core::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::builder::Settings;
use super::connection::{ListenConnection, QueryError};
use super::dispatch::Dispatcher;
use super::error::ListenError;
use super::session::to_lost;
use crate::pg::config::ListenConfig;
use crate::pg::connect::{Connected, connect};
use crate::pg::quote::{push_identifier, push_literal};

/// How long the notification may take to arrive once it has been sent.
const ARRIVAL_LIMIT: Duration = Duration::from_secs(2);
/// How long after a failed probe, or one that could not be sent, the next one is due.
const RETRY_AFTER: Duration = Duration::from_secs(30);

pub(super) struct Probe {
    config: ListenConfig,
    /// How long the second connection may take as a whole.
    send_limit: Duration,
    pooled: bool,
    failed: bool,
    channel: String,
    nonce: String,
    state: State,
}

enum State {
    /// Disabled, or done.
    Inactive,
    DueAt(Instant),
    /// The second connection is sending it.
    Sending(Pin<Box<dyn Future<Output = Result<(), ListenError>> + Send>>),
    /// Sent; must arrive before this instant.
    SentUntil(Instant),
}

pub(super) enum ProbeOutcome {
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
            send_limit: settings.connect_timeout,
            pooled,
            failed: false,
            channel: format!("doorbell_probe_{:016x}", fastrand::u64(..)),
            nonce: String::new(),
            state: if settings.self_probe {
                State::DueAt(Instant::now())
            } else {
                State::Inactive
            },
        }
    }

    pub(super) fn is_enabled(&self) -> bool {
        !matches!(self.state, State::Inactive)
    }

    /// Whether the latest probe did not arrive.
    pub(super) fn has_failed(&self) -> bool {
        self.failed
    }

    pub(super) fn due(&self) -> Option<Instant> {
        match self.state {
            State::DueAt(due) | State::SentUntil(due) => Some(due),
            State::Inactive | State::Sending(_) => None,
        }
    }

    /// Takes the next step, if one is due.
    pub(super) async fn advance(
        &mut self,
        connection: &mut ListenConnection,
        dispatcher: &mut Dispatcher,
    ) -> Result<Option<ProbeOutcome>, ListenError> {
        let arrived = dispatcher.probe_arrived();
        match self.state {
            State::DueAt(due) if due <= Instant::now() => self.send(connection, dispatcher).await,
            State::SentUntil(_) | State::Sending(_) if arrived => {
                self.unlisten(connection, dispatcher).await?;
                self.state = State::Inactive;
                let after_failure = std::mem::take(&mut self.failed);
                Ok(Some(ProbeOutcome::Arrived { after_failure }))
            }
            State::SentUntil(due) if due <= Instant::now() => {
                self.unlisten(connection, dispatcher).await?;
                self.state = State::DueAt(Instant::now() + RETRY_AFTER);
                self.failed = true;
                Ok(Some(ProbeOutcome::NotArrived))
            }
            _ => Ok(None),
        }
    }

    async fn send(
        &mut self,
        connection: &mut ListenConnection,
        dispatcher: &mut Dispatcher,
    ) -> Result<Option<ProbeOutcome>, ListenError> {
        let mut sql = "LISTEN ".to_owned();
        push_identifier(&mut sql, &self.channel);
        self.nonce = format!("{:016x}", fastrand::u64(..));
        dispatcher.expect_probe(&self.channel, &self.nonce);
        match connection.query(dispatcher, "the probe's LISTEN", &sql).await {
            Ok(_) => {}
            Err(QueryError::Refused(error)) => return Ok(Some(self.not_sent(ListenError::Notify(error)))),
            Err(QueryError::Lost(error)) => return Err(error),
        }
        let notify = self.notify_sql();
        if self.pooled {
            let sending = send_from_second_connection(self.config.clone(), notify, self.send_limit);
            self.state = State::Sending(Box::pin(sending));
            return Ok(None);
        }
        match connection.query(dispatcher, "the probe's NOTIFY", &notify).await {
            Ok(_) => {
                self.state = State::SentUntil(Instant::now() + ARRIVAL_LIMIT);
                // The notification usually arrives ahead of the answer.
                Box::pin(self.advance(connection, dispatcher)).await
            }
            Err(QueryError::Refused(error)) => Ok(Some(self.not_sent(ListenError::Notify(error)))),
            Err(QueryError::Lost(error)) => Err(error),
        }
    }

    fn notify_sql(&self) -> String {
        let mut sql = "SET LOCAL lock_timeout = 2000; SELECT pg_catalog.pg_notify(".to_owned();
        push_literal(&mut sql, &self.channel);
        sql.push_str(", ");
        push_literal(&mut sql, &self.nonce);
        sql.push(')');
        sql
    }

    async fn unlisten(
        &mut self,
        connection: &mut ListenConnection,
        dispatcher: &mut Dispatcher,
    ) -> Result<(), ListenError> {
        let mut sql = "UNLISTEN ".to_owned();
        push_identifier(&mut sql, &self.channel);
        dispatcher.end_probe();
        let answer = connection.query(dispatcher, "the probe's UNLISTEN", &sql).await;
        answer.map(drop).map_err(to_lost)
    }

    fn not_sent(&mut self, error: ListenError) -> ProbeOutcome {
        self.state = State::DueAt(Instant::now() + RETRY_AFTER);
        ProbeOutcome::NotSent(error)
    }

    /// Waits until the second connection is done; forever if there is none. Cancel-safe.
    pub(super) async fn sent(&mut self) -> Result<(), ListenError> {
        match &mut self.state {
            State::Sending(sending) => sending.await,
            _ => pending().await,
        }
    }

    /// Handles the result of [`sent`](Self::sent).
    pub(super) fn on_sent(&mut self, sent: Result<(), ListenError>) -> Option<ProbeOutcome> {
        match sent {
            Ok(()) => {
                self.state = State::SentUntil(Instant::now() + ARRIVAL_LIMIT);
                None
            }
            Err(error) => Some(self.not_sent(error)),
        }
    }
}

async fn send_from_second_connection(config: ListenConfig, sql: String, limit: Duration) -> Result<(), ListenError> {
    let sending = async {
        let connected = connect(&config, limit).await.map_err(ListenError::Connect)?;
        let Connected { client, raw, .. } = connected;
        let mut raw = core::pin::pin!(raw);
        let sent = tokio::select! {
            sent = client.simple_query(&sql) => sent.map(drop),
            ended = &mut raw => ended,
        };
        sent.map_err(|error| ListenError::Notify(error.into()))?;
        drop(client);
        // Sends Terminate. The notification is on its way in any case.
        drop(raw.await);
        Ok(())
    };
    let timed_out = |_| ListenError::Timeout {
        what: "the probe's connection",
        after: limit,
    };
    timeout(limit, sending).await.map_err(timed_out)?
}

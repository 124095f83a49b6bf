//! One connection, from its first statement to its loss.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};
use tokio_postgres::SimpleQueryMessage;
use tokio_postgres::error::SqlState;

use super::backend_key::announced_pid;
use super::builder::{ConfigSource, Settings};
use super::connection::{ListenConnection, QueryError};
use super::dispatch::Dispatcher;
use super::error::ListenError;
use super::health::{Delivery, ListenState, ServerInfo};
use super::probe::{Probe, ProbeOutcome};
use super::reconcile::Reconciler;
use super::shared::SharedListener;
use super::worker::{NotifyRequest, Worker};
use crate::event::foreign;
use crate::pg::config::{ConfigError, ListenConfig};
use crate::pg::connect::{Connected, connect};
use crate::pg::deadline::deadline_in;
use crate::pg::quote::push_literal;
use crate::pg::server_error::ServerError;

/// How many messages are dispatched before anything else gets its turn.
const BURST: usize = 64;
/// The server's limits that would end an idle session. Not every version has each.
const TIMEOUTS: [&str; 3] = [
    "idle_session_timeout",
    "idle_in_transaction_session_timeout",
    "transaction_timeout",
];
/// How long the server may take to close the connection.
const CLOSE_LIMIT: Duration = Duration::from_millis(500);

pub(super) struct Session {
    pub(super) connection: ListenConnection,
    pub(super) dispatcher: Dispatcher,
    probe: Probe,
    server: ServerInfo,
    pub(super) reconciler: Reconciler,
    next_heartbeat: Instant,
    /// When every channel was acknowledged, if they were.
    established_at: Option<Instant>,
    /// Set behind a pooler until the probe arrives. Until then nothing is listened to: the backend may serve another client next,
    /// which would get our notifications without expecting any.
    awaiting_probe: bool,
    /// Those of [`TIMEOUTS`] that the server has.
    timeouts: Vec<&'static str>,
}

impl Session {
    /// Connects and identifies the server. Sends no LISTEN yet.
    pub(super) async fn connect(
        settings: &Settings,
        source: &ConfigSource,
        shared: Arc<SharedListener>,
    ) -> Result<Self, ListenError> {
        // Foreign code, whose panic is a failed attempt like its error.
        let config = catch_unwind(AssertUnwindSafe(|| source())).unwrap_or_else(|panic| {
            let message = foreign::message_of(panic);
            Err(ConfigError::new(format!(
                "the function that returns the connection options panicked: {message}"
            )))
        });
        let config = config?.with_defaults(settings.application_name.as_deref());
        let connecting = Self::open(settings, config, shared);
        let after = settings.connect_timeout;
        let timed_out = |_| ListenError::Timeout {
            what: "the attempt to connect",
            after,
        };
        timeout(after, connecting).await.map_err(timed_out)?
    }

    async fn open(settings: &Settings, config: ListenConfig, shared: Arc<SharedListener>) -> Result<Self, ListenError> {
        let connected = connect(&config, settings.connect_timeout).await;
        let Connected { client, raw, .. } = connected.map_err(ListenError::Connect)?;
        let mut connection = ListenConnection::new(client, raw, settings.heartbeat_deadline);
        let mut dispatcher = Dispatcher::new(shared);
        let first_query = "the first query";
        let mut answer = connection
            .query(&mut dispatcher, first_query, &identity_query(STARTED_AT))
            .await;
        // The role may not be permitted to know when the server was started.
        if matches!(&answer, Err(QueryError::Refused(error)) if error.is(&SqlState::INSUFFICIENT_PRIVILEGE)) {
            answer = connection
                .query(&mut dispatcher, first_query, &identity_query("NULL"))
                .await;
        }
        let answer = answer.map_err(to_connect)?;
        let identity = answer.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => {
                let known = TIMEOUTS
                    .into_iter()
                    .zip(4..)
                    .filter(|(_, column)| row.get(*column).is_some());
                Some((
                    row.get(0)?,
                    row.get(1)?,
                    row.get(2)?,
                    row.get(3),
                    known.map(|(name, _)| name).collect(),
                ))
            }
            _ => None,
        });
        let Some((pid, in_recovery, version, started_at, timeouts)) = identity else {
            // Perhaps a proxy that is not ready, so the next attempt may succeed.
            return Err(ListenError::Connect(ServerError::no_row()));
        };
        if in_recovery == "t" {
            connection.close(CLOSE_LIMIT).await;
            return Err(ListenError::Standby);
        }
        let backend_pid: i32 = pid.parse().unwrap_or(0);
        let server = ServerInfo {
            backend_pid,
            version: version.to_owned(),
            started_at: started_at.map(str::to_owned),
            pooled: announced_pid(connection.client())
                .await
                .is_some_and(|pid| pid != backend_pid),
        };
        let mut session = Self {
            connection,
            dispatcher,
            probe: Probe::new(settings, config, server.pooled),
            server,
            reconciler: Reconciler::default(),
            next_heartbeat: deadline_in(settings.heartbeat_interval),
            established_at: None,
            awaiting_probe: false,
            timeouts,
        };
        session.awaiting_probe = session.server.pooled && session.probe.is_enabled();
        // Settings of a pooled session may leak to other clients, until the probe shows that the backend is not shared.
        if !session.server.pooled {
            session.configure(settings).await?;
        }
        Ok(session)
    }

    /// Overrides the timeouts of the server, the database and the role: none ends an idle session, and no statement outlives the
    /// heartbeat's deadline.
    async fn configure(&mut self, settings: &Settings) -> Result<(), ListenError> {
        let statement_timeout = settings.heartbeat_deadline.as_millis().clamp(1, i32::MAX as u128);
        let mut sql = format!("SET statement_timeout = {statement_timeout}");
        for name in &self.timeouts {
            let _ = write!(sql, "; SET {name} = 0");
        }
        let answer = self
            .connection
            .query(&mut self.dispatcher, "the session's settings", &sql)
            .await;
        answer.map(drop).map_err(to_connect)
    }

    pub(super) fn established_at(&self) -> Option<Instant> {
        self.established_at
    }

    /// Serves the connection until it is lost, and returns the reason.
    pub(super) async fn serve(&mut self, worker: &mut Worker) -> ListenError {
        match self.run(worker).await {
            Err(error) => error,
            Ok(never) => match never {},
        }
    }

    async fn run(&mut self, worker: &mut Worker) -> Result<core::convert::Infallible, ListenError> {
        worker.shared.channels.begin_session();
        if !self.awaiting_probe {
            self.establish(worker).await?;
            self.report_health(worker, Delivery::Unverified);
        }
        if !self.probe.is_enabled() {
            worker.report.first_attempt(Ok(()));
        }
        loop {
            if let Some(outcome) = self.probe.advance(&mut self.connection, &mut self.dispatcher).await? {
                self.handle_probe(worker, outcome).await?;
            }
            if self.next_heartbeat <= Instant::now() {
                self.heartbeat(worker).await?;
            }
            if self
                .reconciler
                .next_due()
                .is_some_and(|due| due <= std::time::Instant::now())
            {
                self.handle_changes(worker).await?;
            }
            // A deferred message must not wait while the session idles, and handling it may make something else due.
            if self.dispatcher.dispatch_deferred() {
                continue;
            }
            let due = self.next_due();
            tokio::select! {
                message = self.connection.next() => {
                    self.dispatcher.dispatch(message?);
                    self.dispatch_available().await?;
                }
                () = worker.shared.channels.changed.notified() => self.handle_changes(worker).await?,
                Some(request) = worker.requests.recv() => self.notify(worker, request).await?,
                sent = self.probe.sent() => {
                    if let Some(outcome) = self.probe.on_sent(sent) {
                        self.handle_probe(worker, outcome).await?;
                    }
                }
                () = worker.shared.superseded.notified() => return Err(ListenError::Superseded),
                () = sleep_until(due) => {}
            }
        }
    }

    /// Listens on every subscribed channel.
    async fn establish(&mut self, worker: &mut Worker) -> Result<(), ListenError> {
        self.listen_on_all(worker).await?;
        self.established_at = Some(Instant::now());
        worker.shared.count(|stats| stats.connects += 1);
        Ok(())
    }

    /// Reconciles the channels, or refuses them all if the probe has failed. While the probe is pending, they wait for it.
    async fn handle_changes(&mut self, worker: &mut Worker) -> Result<(), ListenError> {
        if !self.awaiting_probe {
            return self.reconcile(worker).await;
        }
        if self.probe.has_failed() {
            worker.shared.channels.refuse_all(&ListenError::NotDelivered);
        }
        Ok(())
    }

    /// Dispatches the rest of a burst, without going through the whole loop for each notification.
    async fn dispatch_available(&mut self) -> Result<(), ListenError> {
        for _ in 1..BURST {
            match self.connection.try_next().await {
                Some(message) => self.dispatcher.dispatch(message?),
                None => break,
            }
        }
        self.dispatcher.give_turn().await;
        Ok(())
    }

    fn next_due(&self) -> Instant {
        let reconcile = self.reconciler.next_due().map(Instant::from_std);
        let due = [Some(self.next_heartbeat), reconcile, self.probe.due()];
        due.into_iter().flatten().min().unwrap_or(self.next_heartbeat)
    }

    /// Detects a dead peer, a primary that has become a standby, and lost registrations.
    async fn heartbeat(&mut self, worker: &Worker) -> Result<(), ListenError> {
        let sql = "SELECT pg_catalog.pg_is_in_recovery(); SELECT pg_catalog.pg_listening_channels()";
        let answer = self
            .connection
            .query(&mut self.dispatcher, "a heartbeat", sql)
            .await
            .map_err(to_lost)?;
        worker.shared.count(|stats| stats.heartbeats += 1);
        self.next_heartbeat = deadline_in(worker.settings.heartbeat_interval);
        // Behind a pooler in transaction mode, another backend may have answered.
        if self.probe.has_failed() {
            return Ok(());
        }
        let mut rows = answer.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        if rows.next() == Some("t") {
            return Err(ListenError::Standby);
        }
        let registered: HashSet<&str> = rows.collect();
        let missing = self
            .reconciler
            .listening()
            .iter()
            .filter(|name| !registered.contains(name.as_str()))
            .count();
        if missing > 0 {
            return Err(ListenError::RegistrationLost { missing });
        }
        Ok(())
    }

    async fn notify(&mut self, worker: &Worker, request: NotifyRequest) -> Result<(), ListenError> {
        if request.reply.is_closed() {
            return Ok(()); // the caller has given up
        }
        request.started.send_replace(true);
        // The commit of a NOTIFY takes a lock of the whole cluster, which another session may hold for long.
        let lock_timeout = worker.settings.heartbeat_deadline / 2;
        let mut sql = format!(
            "SET LOCAL lock_timeout = {}; SELECT pg_catalog.pg_notify(",
            lock_timeout.as_millis().clamp(1, i32::MAX as u128)
        );
        push_literal(&mut sql, request.channel.as_str());
        sql.push_str(", ");
        push_literal(&mut sql, &request.payload);
        sql.push(')');
        let (reply, lost) = match self.connection.query(&mut self.dispatcher, "NOTIFY", &sql).await {
            Ok(_) => {
                worker.shared.count(|stats| stats.notifications_sent += 1);
                (Ok(()), Ok(()))
            }
            Err(QueryError::Refused(error)) => (Err(ListenError::Notify(error)), Ok(())),
            Err(QueryError::Lost(error)) => (Err(ListenError::NotifyUnknown), Err(error)),
        };
        // The caller may have given up.
        let _ = request.reply.send(reply);
        lost
    }

    async fn handle_probe(&mut self, worker: &mut Worker, outcome: ProbeOutcome) -> Result<(), ListenError> {
        match outcome {
            ProbeOutcome::Arrived { after_failure: true } if self.server.pooled => {
                // Notifications did not arrive before and do now, perhaps from another backend: register everything anew.
                let missing = self.reconciler.listening().len();
                return Err(ListenError::RegistrationLost { missing });
            }
            ProbeOutcome::Arrived { .. } => {
                if self.server.pooled {
                    self.configure(&worker.settings).await?;
                }
                if std::mem::take(&mut self.awaiting_probe) {
                    self.establish(worker).await?;
                }
                self.report_health(worker, Delivery::Verified);
                worker.report.first_attempt(Ok(()));
            }
            ProbeOutcome::NotArrived => {
                self.report_health(worker, Delivery::Failed);
                if self.awaiting_probe {
                    worker.shared.channels.refuse_all(&ListenError::NotDelivered);
                }
                worker.report.first_attempt(Err(ListenError::NotDelivered));
            }
            ProbeOutcome::NotSent(error) => {
                if self.awaiting_probe {
                    self.report_health(worker, Delivery::Failed);
                    worker.shared.channels.refuse_all(&error);
                }
                worker.report.update(|health| health.reason = Some(error));
                worker.report.first_attempt(Ok(()));
            }
        }
        Ok(())
    }

    pub(super) fn report_health(&self, worker: &Worker, delivery: Delivery) {
        let reason = match delivery {
            Delivery::Failed => Some(ListenError::NotDelivered),
            Delivery::Verified | Delivery::Unverified => self.reconciler.undelivered().cloned(),
        };
        worker.report.update(|health| {
            health.state = if reason.is_some() {
                ListenState::Degraded
            } else {
                ListenState::Healthy
            };
            health.reason = reason;
            health.server = Some(self.server.clone());
            health.standby = Some(false);
            health.delivery = delivery;
        });
    }

    pub(super) async fn close(self) {
        self.connection.close(CLOSE_LIMIT).await;
    }
}

/// In UTC, to the microsecond.
pub(crate) const STARTED_AT: &str = "pg_catalog.to_char(pg_catalog.timezone('UTC', pg_catalog.pg_postmaster_start_time()), \
                          'YYYY-MM-DD HH24:MI:SS.US')";

/// Asks for the session's process and what is known about the server.
fn identity_query(started_at: &str) -> String {
    let mut sql = format!(
        "SELECT pg_catalog.pg_backend_pid(), pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('server_version'), {started_at}"
    );
    for name in TIMEOUTS {
        // Null if the server has no such setting.
        let _ = write!(sql, ", pg_catalog.current_setting('{name}', true)");
    }
    sql
}

fn to_connect(error: QueryError) -> ListenError {
    match error {
        QueryError::Refused(error) | QueryError::Lost(ListenError::Lost(error)) => ListenError::Connect(error),
        QueryError::Lost(error) => error,
    }
}

/// For statements that a healthy session never refuses.
pub(super) fn to_lost(error: QueryError) -> ListenError {
    match error {
        QueryError::Refused(error) => ListenError::Lost(error),
        QueryError::Lost(error) => error,
    }
}

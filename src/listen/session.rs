//! One connection, from its first statement to its loss.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};
use tokio_postgres::SimpleQueryMessage;

use super::backend_key::announced_pid;
use super::builder::{ConfigSource, Settings};
use super::connection::{AskError, ListenConnection, connect};
use super::dispatch::Dispatcher;
use super::error::ListenError;
use super::health::{Delivery, ListenState, ServerInfo};
use super::probe::{Outcome, Probe};
use super::reconcile::Reconciler;
use super::shared::SharedListener;
use super::worker::{NotifyRequest, Worker};
use crate::pg::config::{ConfigError, ListenConfig};
use crate::pg::quote::push_literal;

/// How many messages are taken before anything else gets its turn.
const BURST: usize = 64;
/// How long the farewell may take.
const FAREWELL: Duration = Duration::from_millis(500);

pub(super) struct Session {
    pub(super) connection: ListenConnection,
    pub(super) dispatcher: Dispatcher,
    probe: Probe,
    server: ServerInfo,
    pub(super) reconciler: Reconciler,
    next_heartbeat: Instant,
    stood_since: Option<Instant>,
    /// Behind a pooler, until the probe has arrived: a LISTEN might stay with a backend that is somebody else's in a moment, who
    /// would get our notifications and need not expect any.
    deaf: bool,
}

impl Session {
    /// Connects, and asks the server who it is. Nothing is listened to yet.
    pub(super) async fn connect(
        settings: &Settings,
        source: &ConfigSource,
        shared: Arc<SharedListener>,
    ) -> Result<Self, ListenError> {
        let config = source()?.with_defaults(settings.application_name.as_deref());
        let connecting = Self::introduce(settings, config, shared);
        let after = settings.connect_timeout;
        let timed_out = |_| ListenError::Timeout {
            what: "the attempt to connect",
            after,
        };
        timeout(after, connecting).await.map_err(timed_out)?
    }

    async fn introduce(
        settings: &Settings,
        config: ListenConfig,
        shared: Arc<SharedListener>,
    ) -> Result<Self, ListenError> {
        let (client, wire) = connect(&config).await?;
        let mut connection = ListenConnection::new(client, wire, settings.heartbeat_deadline);
        let mut dispatcher = Dispatcher::new(shared);
        let sql = "SELECT pg_catalog.pg_backend_pid(), pg_catalog.pg_is_in_recovery(), \
                   pg_catalog.current_setting('server_version')";
        let answer = connection
            .ask(&mut dispatcher, "the first question", sql)
            .await
            .map_err(to_connect)?;
        let who = answer.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some((row.get(0)?, row.get(1)?, row.get(2)?)),
            _ => None,
        });
        let Some((pid, in_recovery, version)) = who else {
            return Err(ConfigError::new("the peer is not a Postgres server").into());
        };
        if in_recovery == "t" {
            connection.close(FAREWELL).await;
            return Err(ListenError::Standby);
        }
        let backend_pid: i32 = pid.parse().unwrap_or(0);
        let server = ServerInfo {
            backend_pid,
            version: version.to_owned(),
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
            next_heartbeat: Instant::now() + settings.heartbeat_interval,
            stood_since: None,
            deaf: false,
        };
        session.deaf = session.server.pooled && session.probe.is_enabled();
        // A pooled session may be another's in a moment: it is left as it is, until it is known to stay ours.
        if !session.server.pooled {
            session.claim(settings).await?;
        }
        Ok(session)
    }

    /// Settings that keep an idle session alive whatever the server, the database or the role have set, and that let no
    /// statement of ours outlive our own patience.
    async fn claim(&mut self, settings: &Settings) -> Result<(), ListenError> {
        let patience = settings.heartbeat_deadline.as_millis().clamp(1, i32::MAX as u128);
        let sql = format!(
            "SELECT pg_catalog.set_config(name, CASE name WHEN 'statement_timeout' THEN '{patience}' ELSE '0' END, false) \
             FROM pg_catalog.pg_settings WHERE name IN ('statement_timeout', 'idle_session_timeout', \
             'idle_in_transaction_session_timeout', 'transaction_timeout')"
        );
        let claimed = self
            .connection
            .ask(&mut self.dispatcher, "the session's settings", &sql)
            .await;
        claimed.map(drop).map_err(to_connect)
    }

    /// Since when every channel has been acknowledged, if they were.
    pub(super) fn stood_since(&self) -> Option<Instant> {
        self.stood_since
    }

    /// Listens for as long as the connection lasts; returns why it does not.
    pub(super) async fn serve(&mut self, worker: &mut Worker) -> ListenError {
        match self.serving(worker).await {
            Err(error) => error,
            Ok(never) => match never {},
        }
    }

    async fn serving(&mut self, worker: &mut Worker) -> Result<core::convert::Infallible, ListenError> {
        worker.shared.channels.start_over();
        if !self.deaf {
            self.stand(worker).await?;
            self.tell(worker, Delivery::Unproven);
        }
        if !self.probe.is_enabled() {
            worker.report.first(Ok(()));
        }
        loop {
            if let Some(outcome) = self.probe.advance(&mut self.connection, &mut self.dispatcher).await? {
                self.conclude(worker, outcome).await?;
            }
            if self.next_heartbeat <= Instant::now() {
                self.heartbeat(worker).await?;
            }
            if self
                .reconciler
                .next_due()
                .is_some_and(|due| due <= std::time::Instant::now())
            {
                self.keep_up(worker).await?;
            }
            // What came with the last answer is not left lying while the session idles; it may make something else due.
            if self.dispatcher.take_held() {
                continue;
            }
            let due = self.next_due();
            tokio::select! {
                message = self.connection.next() => {
                    self.dispatcher.take(message?);
                    self.take_what_is_there().await?;
                }
                () = worker.shared.channels.changed.notified() => self.keep_up(worker).await?,
                Some(request) = worker.requests.recv() => self.notify(worker, request).await?,
                sent = self.probe.sent() => {
                    if let Some(outcome) = self.probe.was_sent(sent) {
                        self.conclude(worker, outcome).await?;
                    }
                }
                () = sleep_until(due) => {}
            }
        }
    }

    /// Listens to every channel that is wanted.
    async fn stand(&mut self, worker: &mut Worker) -> Result<(), ListenError> {
        self.listen_to_all(worker).await?;
        self.stood_since = Some(Instant::now());
        worker.shared.count(|stats| stats.connects += 1);
        Ok(())
    }

    /// Brings the server up to what is wanted now; or says that it would be in vain.
    async fn keep_up(&mut self, worker: &mut Worker) -> Result<(), ListenError> {
        if !self.deaf {
            return self.follow(worker).await;
        }
        if self.probe.has_failed() {
            worker.shared.channels.refuse_all(&ListenError::NotDelivered);
        }
        Ok(()) // else they wait for the probe
    }

    /// Notifications come in bursts; the rest of the work is not looked at between any two.
    async fn take_what_is_there(&mut self) -> Result<(), ListenError> {
        for _ in 1..BURST {
            match self.connection.try_next().await {
                Some(message) => self.dispatcher.take(message?),
                None => break,
            }
        }
        Ok(())
    }

    fn next_due(&self) -> Instant {
        let later = self.reconciler.next_due().map(Instant::from_std);
        let due = [Some(self.next_heartbeat), later, self.probe.due()];
        due.into_iter().flatten().min().unwrap_or(self.next_heartbeat)
    }

    /// Notices a dead peer, and registrations that got lost.
    async fn heartbeat(&mut self, worker: &Worker) -> Result<(), ListenError> {
        let sql = "SELECT pg_catalog.pg_listening_channels()";
        let answer = self
            .connection
            .ask(&mut self.dispatcher, "a heartbeat", sql)
            .await
            .map_err(to_lost)?;
        worker.shared.count(|stats| stats.heartbeats += 1);
        self.next_heartbeat = Instant::now() + worker.settings.heartbeat_interval;
        // Where nothing arrives, what this backend listens on is no news.
        if self.probe.has_failed() {
            return Ok(());
        }
        let there: HashSet<&str> = answer
            .iter()
            .filter_map(|message| match message {
                SimpleQueryMessage::Row(row) => row.get(0),
                _ => None,
            })
            .collect();
        let missing = self
            .reconciler
            .listening()
            .iter()
            .filter(|name| !there.contains(name.as_str()))
            .count();
        if missing > 0 {
            return Err(ListenError::RegistrationLost { missing });
        }
        Ok(())
    }

    async fn notify(&mut self, worker: &Worker, request: NotifyRequest) -> Result<(), ListenError> {
        if request.reply.is_closed() {
            return Ok(()); // nobody waits for it any more
        }
        request.taken.send_replace(true);
        // The commit of a notification waits for a lock of the whole cluster, and others may hold it for long.
        let patience = worker.settings.heartbeat_deadline / 2;
        let mut sql = format!(
            "SET LOCAL lock_timeout = {}; SELECT pg_catalog.pg_notify(",
            patience.as_millis().clamp(1, i32::MAX as u128)
        );
        push_literal(&mut sql, request.channel.as_str());
        sql.push_str(", ");
        push_literal(&mut sql, &request.payload);
        sql.push(')');
        let (reply, lost) = match self.connection.ask(&mut self.dispatcher, "NOTIFY", &sql).await {
            Ok(_) => {
                worker.shared.count(|stats| stats.notified += 1);
                (Ok(()), Ok(()))
            }
            Err(AskError::Refused(error)) => (Err(ListenError::Notify(error)), Ok(())),
            Err(AskError::Lost(error)) => (Err(ListenError::NotifyUnknown), Err(error)),
        };
        // Nobody may be waiting any more.
        let _ = request.reply.send(reply);
        lost
    }

    /// The probe has come to a result.
    async fn conclude(&mut self, worker: &mut Worker, outcome: Outcome) -> Result<(), ListenError> {
        match outcome {
            Outcome::Arrived { after_failure: true } if self.server.pooled => {
                // Notifications arrive now and did not before: whatever the session had registered is in doubt.
                let missing = self.reconciler.listening().len();
                return Err(ListenError::RegistrationLost { missing });
            }
            Outcome::Arrived { .. } => {
                if self.server.pooled {
                    self.claim(&worker.settings).await?;
                }
                if std::mem::take(&mut self.deaf) {
                    self.stand(worker).await?;
                }
                self.tell(worker, Delivery::Proven);
                worker.report.first(Ok(()));
            }
            Outcome::NotArrived => {
                self.tell(worker, Delivery::Failed);
                if self.deaf {
                    worker.shared.channels.refuse_all(&ListenError::NotDelivered);
                }
                worker.report.first(Err(ListenError::NotDelivered));
            }
            Outcome::NotSent(error) => {
                if self.deaf {
                    self.tell(worker, Delivery::Failed);
                    worker.shared.channels.refuse_all(&error);
                }
                worker.report.update(|health| health.reason = Some(error));
                worker.report.first(Ok(()));
            }
        }
        Ok(())
    }

    /// Puts into the health what this session knows.
    pub(super) fn tell(&self, worker: &Worker, delivery: Delivery) {
        let reason = match delivery {
            Delivery::Failed => Some(ListenError::NotDelivered),
            Delivery::Proven | Delivery::Unproven => self.reconciler.deafness().cloned(),
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

    /// Says goodbye.
    pub(super) async fn close(self) {
        self.connection.close(FAREWELL).await;
    }
}

fn to_connect(error: AskError) -> ListenError {
    match error {
        AskError::Refused(error) | AskError::Lost(ListenError::Lost(error)) => ListenError::Connect(error),
        AskError::Lost(error) => error,
    }
}

/// For statements that never fail on a session that is in order.
pub(super) fn to_lost(error: AskError) -> ListenError {
    match error {
        AskError::Refused(error) => ListenError::Lost(error),
        AskError::Lost(error) => error,
    }
}

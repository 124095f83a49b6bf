//! Sends LISTEN and UNLISTEN.

use std::time::{Duration, Instant};

use tokio_postgres::error::SqlState;

use super::channel_name::ChannelName;
use super::connection::QueryError;
use super::error::{ListenError, ServerError};
use super::session::{Session, to_lost};
use super::worker::Worker;
use crate::pg::quote::push_identifier;

/// The maximum number of channels in one statement.
const BATCH: usize = 256;
/// The time after which a refused LISTEN is repeated.
const REFUSED_RETRY: Duration = Duration::from_secs(5);
/// The number of immediate repetitions of a LISTEN that fails on the server's notification queue.
const QUEUE_RETRIES: usize = 3;

impl Session {
    /// Listens on every subscribed channel of a new connection. Interrupted subscriptions get `Reconnected` only when *all*
    /// channels are acknowledged.
    pub(super) async fn listen_on_all(&mut self, worker: &mut Worker) -> Result<(), ListenError> {
        let statements = self.reconciler.plan(&worker.shared.channels, Instant::now());
        let mut acknowledged = Vec::with_capacity(statements.listen.len());
        for batch in statements.listen.chunks(BATCH) {
            acknowledged.extend(self.listen(worker, batch).await?);
        }
        worker.outage.record_connected();
        worker
            .shared
            .channels
            .acknowledge(&acknowledged, worker.outage.reconnected());
        Ok(())
    }

    /// Sends the statements that are due.
    pub(super) async fn reconcile(&mut self, worker: &mut Worker) -> Result<(), ListenError> {
        let was_undelivered = self.reconciler.undelivered().is_some();
        let statements = self.reconciler.plan(&worker.shared.channels, Instant::now());
        for batch in statements.unlisten.chunks(BATCH) {
            self.unlisten(batch).await?;
            worker.shared.count(|stats| stats.unlistens += batch.len() as u64);
        }
        for batch in statements.listen.chunks(BATCH) {
            let acknowledged = self.listen(worker, batch).await?;
            worker
                .shared
                .channels
                .acknowledge(&acknowledged, worker.outage.reconnected());
        }
        if self.reconciler.undelivered().is_some() != was_undelivered {
            self.report_health(worker, worker.report.delivery());
        }
        Ok(())
    }

    /// Listens on these channels. Returns the acknowledged ones, and records the refused ones.
    async fn listen(&mut self, worker: &Worker, names: &[ChannelName]) -> Result<Vec<ChannelName>, ListenError> {
        match self.listen_once(names).await? {
            Ok(()) => {
                self.acknowledged(worker, names);
                return Ok(names.to_vec());
            }
            Err(error) if names.len() == 1 => {
                self.refused(worker, &names[0], error);
                return Ok(Vec::new());
            }
            Err(_) => {}
        }
        // The server refuses a batch as a whole: repeat the LISTEN for each channel to find the one at fault.
        let mut acknowledged = Vec::new();
        for name in names {
            match self.listen_once(std::slice::from_ref(name)).await? {
                Ok(()) => {
                    self.acknowledged(worker, std::slice::from_ref(name));
                    acknowledged.push(name.clone());
                }
                Err(error) => self.refused(worker, name, error),
            }
        }
        Ok(acknowledged)
    }

    fn acknowledged(&mut self, worker: &Worker, names: &[ChannelName]) {
        for name in names {
            self.reconciler.acknowledged(name);
        }
        worker.shared.count(|stats| stats.listens += names.len() as u64);
    }

    fn refused(&mut self, worker: &Worker, name: &ChannelName, error: ServerError) {
        // With a damaged queue no LISTEN of this server works, so every subscription is missing notifications.
        let is_damaged = is_queue_damaged(&error);
        let channel = name.as_str().to_owned();
        let error = ListenError::Listen { channel, error };
        worker.shared.count(|stats| stats.refused_listens += 1);
        let interrupted = worker.shared.channels.refuse(name, &error);
        let retry_at = Instant::now() + REFUSED_RETRY;
        self.reconciler
            .refused(name, error, interrupted || is_damaged, retry_at);
    }

    /// Sends one statement for all these channels. The inner error is the server's refusal.
    async fn listen_once(&mut self, names: &[ChannelName]) -> Result<Result<(), ServerError>, ListenError> {
        let sql = statement("LISTEN", names);
        let mut retries = 0..QUEUE_RETRIES;
        loop {
            self.dispatcher.take_truncation();
            let error = match self.connection.query(&mut self.dispatcher, "LISTEN", &sql).await {
                Ok(_) => break,
                Err(QueryError::Lost(error)) => return Err(error),
                Err(QueryError::Refused(error)) => error,
            };
            if error.is(&SqlState::READ_ONLY_SQL_TRANSACTION) {
                return Err(ListenError::Standby);
            }
            if !is_queue_damaged(&error) || retries.next().is_none() {
                return Ok(Err(error));
            }
            // This function makes the server advance the tail of its queue past the damage.
            tracing::debug!(%error, "LISTEN failed on the server's notification queue; advancing the queue");
            let advance = "SELECT pg_catalog.pg_notification_queue_usage()";
            let what = "advancing the notification queue";
            if let Err(QueryError::Lost(error)) = self.connection.query(&mut self.dispatcher, what, advance).await {
                return Err(error);
            }
        }
        let Some(notice) = self.dispatcher.take_truncation() else {
            return Ok(Ok(()));
        };
        // The session now listens on a truncated name.
        self.unlisten(names).await?;
        Ok(Err(ServerError::notice(&notice)))
    }

    async fn unlisten(&mut self, names: &[ChannelName]) -> Result<(), ListenError> {
        let sql = statement("UNLISTEN", names);
        let answer = self.connection.query(&mut self.dispatcher, "UNLISTEN", &sql).await;
        answer.map(drop).map_err(to_lost)
    }
}

fn statement(verb: &str, names: &[ChannelName]) -> String {
    let mut sql = String::new();
    for name in names {
        sql.push_str(verb);
        sql.push(' ');
        push_identifier(&mut sql, name.as_str());
        sql.push_str("; ");
    }
    sql
}

/// Returns `true` if the server lacks the commit status of an old transaction that is still in its notification queue.
fn is_queue_damaged(error: &ServerError) -> bool {
    error.is(&SqlState::UNDEFINED_FILE) || error.to_string().contains("could not access status of transaction")
}

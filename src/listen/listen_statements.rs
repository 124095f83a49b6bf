//! The session's statements about channels.

use std::time::{Duration, Instant};

use tokio_postgres::error::SqlState;

use super::channel_name::ChannelName;
use super::connection::AskError;
use super::error::{ListenError, ServerError};
use super::session::{Session, to_lost};
use super::worker::Worker;
use crate::pg::quote::push_identifier;

/// How many channels one statement names.
const BATCH: usize = 256;
/// When the server refused to listen on a channel, this is when it is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// How often a LISTEN is repeated at once when the server's notification queue is in trouble.
const QUEUE_REMEDIES: usize = 3;

impl Session {
    /// The first round on a new connection: whoever may have missed something is told when *every* channel is acknowledged.
    pub(super) async fn listen_to_all(&mut self, worker: &mut Worker) -> Result<(), ListenError> {
        let statements = self.reconciler.plan(&worker.shared.channels, Instant::now());
        let mut acknowledged = Vec::with_capacity(statements.listen.len());
        for batch in statements.listen.chunks(BATCH) {
            acknowledged.extend(self.listen(worker, batch).await?);
        }
        worker.outage.connected();
        worker
            .shared
            .channels
            .acknowledge(&acknowledged, worker.outage.marker());
        Ok(())
    }

    /// Brings the server up to what is wanted now.
    pub(super) async fn follow(&mut self, worker: &mut Worker) -> Result<(), ListenError> {
        let was_deaf = self.reconciler.deafness().is_some();
        let statements = self.reconciler.plan(&worker.shared.channels, Instant::now());
        for batch in statements.unlisten.chunks(BATCH) {
            self.unlisten(worker, batch).await?;
        }
        for batch in statements.listen.chunks(BATCH) {
            let acknowledged = self.listen(worker, batch).await?;
            worker
                .shared
                .channels
                .acknowledge(&acknowledged, worker.outage.marker());
        }
        if self.reconciler.deafness().is_some() != was_deaf {
            self.tell(worker, worker.report.delivery());
        }
        Ok(())
    }

    /// Asks for these channels, and tells who waits for one that the server refuses. Returns the acknowledged ones.
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
        // The batch is refused as a whole: find out whose fault it is.
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
        // On such a server no LISTEN works, so that everybody has something to miss.
        let of_the_server = is_queue_trouble(&error);
        let channel = name.as_str().to_owned();
        let error = ListenError::Listen { channel, error };
        worker.shared.count(|stats| stats.refused_listens += 1);
        let was_listening = worker.shared.channels.refuse(name, &error);
        let again = Instant::now() + ASK_AGAIN;
        self.reconciler
            .refused(name, error, was_listening || of_the_server, again);
    }

    /// One statement for all these channels. The inner error is the server's refusal.
    async fn listen_once(&mut self, names: &[ChannelName]) -> Result<Result<(), ServerError>, ListenError> {
        let sql = statement("LISTEN", names);
        let mut remedies = 0..QUEUE_REMEDIES;
        loop {
            self.dispatcher.take_truncation();
            let error = match self.connection.ask(&mut self.dispatcher, "LISTEN", &sql).await {
                Ok(_) => break,
                Err(AskError::Lost(error)) => return Err(error),
                Err(AskError::Refused(error)) => error,
            };
            if error.is(&SqlState::READ_ONLY_SQL_TRANSACTION) {
                return Err(ListenError::Standby);
            }
            if !is_queue_trouble(&error) || remedies.next().is_none() {
                return Ok(Err(error));
            }
            // The published remedy: it makes the server move the tail of its queue.
            tracing::debug!(%error, "LISTEN fails on the server's notification queue; advancing the queue");
            let remedy = "SELECT pg_catalog.pg_notification_queue_usage()";
            let what = "advancing the notification queue";
            if let Err(AskError::Lost(error)) = self.connection.ask(&mut self.dispatcher, what, remedy).await {
                return Err(error);
            }
        }
        let Some(notice) = self.dispatcher.take_truncation() else {
            return Ok(Ok(()));
        };
        // The session listens on something, but not on what was asked for.
        self.forget_at_server(names).await?;
        Ok(Err(ServerError::notice(&notice)))
    }

    async fn unlisten(&mut self, worker: &Worker, names: &[ChannelName]) -> Result<(), ListenError> {
        self.forget_at_server(names).await?;
        worker.shared.count(|stats| stats.unlistens += names.len() as u64);
        Ok(())
    }

    async fn forget_at_server(&mut self, names: &[ChannelName]) -> Result<(), ListenError> {
        let sql = statement("UNLISTEN", names);
        let told = self.connection.ask(&mut self.dispatcher, "UNLISTEN", &sql).await;
        told.map(drop).map_err(to_lost)
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

/// `could not access status of transaction`: the server has lost a piece of its notification queue's past.
fn is_queue_trouble(error: &ServerError) -> bool {
    error.is(&SqlState::UNDEFINED_FILE) || error.to_string().contains("could not access status of transaction")
}

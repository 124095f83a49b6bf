//! Transactions that the appends of this process share.

use serde_json::value::RawValue;
use sqlx::types::Json;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::timeout;

use super::PostgresStore;
use super::append::{Outgoing, Stamp};
use super::append_queue::{QueuedAppend, Share};
use super::execute::rows;
use crate::event::StreamEvent;
use crate::pg::warm_pool::PooledConnection;
use crate::store::StoreError;

/// Shared transactions, one after another, for as long as somebody waits.
struct GroupCommit<E: StreamEvent> {
    store: PostgresStore<E>,
    ended: bool,
}

/// Streams that are under way.
struct CommitGroup<'a, E: StreamEvent> {
    store: &'a PostgresStore<E>,
    shares: Vec<Share>,
}

impl<E: StreamEvent> PostgresStore<E> {
    /// Appends an event: at once where few append, else together with others that wait for the same.
    pub(super) async fn append_queued(&self, stream_key: &str, outgoing: Outgoing) -> Result<Stamp, StoreError> {
        let unavailable = |reason: &str| StoreError::Unavailable {
            reason: reason.to_owned(),
        };
        let ended = || unavailable("the runtime on which the append was to run has ended");
        let runtime = Handle::try_current().map_err(|_| unavailable("there is no tokio runtime here"))?;
        // Never within the caller's future, for which others would have to wait: a caller may give up, or not poll it for a while.
        if let Some(direct_append) = self.direct_append(stream_key) {
            return runtime
                .spawn(direct_append.append(outgoing))
                .await
                .map_err(|_| ended())?;
        }
        let (answer, answered) = oneshot::channel();
        if self
            .shared
            .append_queue
            .enqueue(stream_key, QueuedAppend { outgoing, answer })
        {
            self.append_in_group();
        }
        answered.await.map_err(|_| ended())?
    }

    /// Begins the shared transactions that [`AppendQueue`](super::append_queue::AppendQueue) asks for.
    pub(super) fn append_in_group(&self) {
        let shared = GroupCommit {
            store: self.clone(),
            ended: false,
        };
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(shared.run())),
            // The runtime is gone, and with it whoever waits.
            Err(_) => drop(shared),
        }
    }

    /// Appends what can be appended without waiting for a lock, as a whole; `None` for the others, whose streams are taken.
    pub(super) async fn try_append_records(
        &self,
        connection: &mut PooledConnection,
        events: &[(&str, &Outgoing)],
    ) -> Result<Vec<Option<Stamp>>, StoreError> {
        let stream_keys: Vec<&str> = events.iter().map(|(stream_key, _)| *stream_key).collect();
        let payloads: Vec<_> = events
            .iter()
            .map(|(_, outgoing)| Json::<&RawValue>(&outgoing.payload))
            .collect();
        let expected: Vec<i64> = events.iter().map(|(_, outgoing)| outgoing.expected).collect();
        let query = sqlx::query(&self.shared.schema.try_append_records)
            .bind(stream_keys)
            .bind(payloads)
            .bind(expected);
        let append = rows(connection, query, self.shared.transaction_pooler);
        match timeout(self.lock_limit(), append).await {
            Ok(Ok(rows)) => rows.iter().map(|row| self.stamp_unless_taken(row)).collect(),
            Ok(Err(error)) => Err(self.append_error(error, events[0].0)),
            Err(_) => Err(self.give_up(connection)),
        }
    }
}

impl<E: StreamEvent> GroupCommit<E> {
    async fn run(mut self) {
        let store = self.store.clone();
        let append_queue = &store.shared.append_queue;
        loop {
            // What comes while it waits for a connection goes along.
            let connection = store.acquire().await;
            // So does whoever is about to append, such as those who have just been answered.
            yield_now().await;
            let shares = append_queue.next_shared();
            if shares.is_empty() {
                if let Ok(connection) = connection {
                    store.shared.connections.give_back(connection);
                }
                self.ended = true;
                return;
            }
            let under_way = CommitGroup { store: &store, shares };
            match connection {
                Ok(connection) => under_way.append(connection).await,
                Err(error) => under_way.fail(&error),
            }
        }
    }
}

impl<E: StreamEvent> Drop for GroupCommit<E> {
    fn drop(&mut self) {
        if !self.ended {
            self.store.shared.append_queue.give_up();
        }
    }
}

impl<E: StreamEvent> CommitGroup<'_, E> {
    /// Appends and answers.
    async fn append(mut self, mut connection: PooledConnection) {
        let mut events = Vec::new();
        for Share { stream_key, waiting } in &self.shares {
            events.extend(waiting.iter().map(|waiting| (&**stream_key, &waiting.outgoing)));
        }
        match self.store.try_append_records(&mut connection, &events).await {
            Ok(stamps) => {
                self.store.shared.connections.give_back(connection);
                self.answer(stamps);
            }
            // Nothing was written, and perhaps only one of them is to blame.
            Err(error) if !matches!(error, StoreError::Unavailable { .. }) && events.len() > 1 => {
                for share in std::mem::take(&mut self.shares) {
                    self.store.append_contended(share);
                }
            }
            Err(error) => self.fail(&error),
        }
    }

    fn answer(&mut self, stamps: Vec<Option<Stamp>>) {
        let mut stamps = stamps.into_iter();
        for mut share in std::mem::take(&mut self.shares) {
            let stamps: Vec<_> = stamps.by_ref().take(share.waiting.len()).collect();
            let Some(stamps) = stamps.into_iter().collect::<Option<Vec<_>>>() else {
                self.store.append_contended(share);
                continue;
            };
            let waiting = std::mem::take(&mut share.waiting);
            self.store.shared.append_queue.is_done(&share.stream_key);
            for (waiting, stamp) in waiting.into_iter().zip(stamps) {
                let _ = waiting.answer.send(Ok(stamp)); // if nobody waits it is appended all the same
            }
        }
    }

    fn fail(mut self, error: &StoreError) {
        for share in std::mem::take(&mut self.shares) {
            self.store.shared.append_queue.is_done(&share.stream_key);
            for waiting in share.waiting {
                let _ = waiting.answer.send(Err(error.clone()));
            }
        }
    }
}

impl<E: StreamEvent> Drop for CommitGroup<'_, E> {
    /// With shares only if the runtime ends.
    fn drop(&mut self) {
        for share in self.shares.drain(..) {
            self.store.shared.append_queue.is_done(&share.stream_key);
        }
    }
}

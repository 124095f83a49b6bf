//! Reads committed events directly from the store, without the bus, and trims old ones.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use doorbell::bus::{BusEvent, FleetEvent};
use doorbell::store::{PostgresStore, Store, StoreError};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use super::account::Account;
use super::{Failure, STREAMS, connect, stream};
use crate::child::LIMIT;

const INTERVAL: Duration = Duration::from_secs(1);
/// Retention removes no event that was found later than this ago. A subscription that reads as fast as it can is never so late, so it
/// must receive every event.
const KEEP_FOR: Duration = Duration::from_secs(30);
const PAGE: usize = 1_000;

/// The number of events that the audit has found in the store.
#[derive(Clone, Default)]
pub(super) struct Committed(Arc<AtomicU64>);

impl Committed {
    pub(super) fn get(&self) -> u64 {
        // Relaxed: used only for display.
        self.0.load(Ordering::Relaxed)
    }
}

pub(super) struct Audit {
    url: String,
    store: Arc<PostgresStore>,
    account: Account,
    committed: Committed,
    /// How many events of each stream to keep.
    keep: u64,
    /// When which events were the last of their streams, in the last [`KEEP_FOR`] and just before.
    found: BTreeMap<String, VecDeque<(Instant, u64)>>,
    /// The number through which events of a stream have been, or may have been, removed.
    low_water_marks: BTreeMap<String, u64>,
    trimmed: u64,
}

impl Audit {
    /// Connects, and creates the tables.
    pub(super) async fn start(url: &str, keep: u64) -> Result<Self, Failure> {
        let store = timeout(LIMIT, connect(url)).await?;
        store.migrate().await?;
        Ok(Self {
            url: url.to_owned(),
            store,
            account: Account::default(),
            committed: Committed::default(),
            keep,
            found: BTreeMap::new(),
            low_water_marks: BTreeMap::new(),
            trimmed: 0,
        })
    }

    pub(super) fn committed(&self) -> Committed {
        self.committed.clone()
    }

    pub(super) fn trimmed(&self) -> u64 {
        self.trimmed
    }

    /// Reads and trims the store every [`INTERVAL`] until `stopped` resolves.
    pub(super) async fn follow(mut self, mut stopped: oneshot::Receiver<()>) -> Result<Self, Failure> {
        loop {
            self.pass().await.or_else(ignore_transient)?;
            tokio::select! {
                _ = &mut stopped => return Ok(self),
                () = sleep(INTERVAL) => {}
            }
        }
    }

    /// Reads the rest of the store, once no publisher appends any more.
    pub(super) async fn finish(&mut self) -> Result<(), Failure> {
        // Old connections may lead to a standby.
        self.store = timeout(LIMIT, connect(&self.url)).await?;
        let limit = Instant::now() + LIMIT;
        while let Err(error) = self.pass().await {
            if Instant::now() > limit || !error.is_transient() {
                return Err(error.into());
            }
        }
        Ok(())
    }

    async fn pass(&mut self) -> Result<(), StoreError> {
        for n in 0..STREAMS {
            let key = stream(n);
            while self.read_page(&key).await? {}
            self.trim(&key).await?;
        }
        Ok(())
    }

    async fn trim(&mut self, key: &str) -> Result<(), StoreError> {
        let last = self.account.last(key);
        let found = self.found.entry(key.to_owned()).or_default();
        found.push_back((Instant::now(), last));
        while found.get(1).is_some_and(|(time, _)| time.elapsed() > KEEP_FOR) {
            found.pop_front();
        }
        let old = found.front().filter(|(time, _)| time.elapsed() > KEEP_FOR);
        let through = last.saturating_sub(self.keep).min(old.map_or(0, |(_, last)| *last));
        // A trim per event would dominate the run.
        if through > self.low_water_mark(key) + self.keep / 10 {
            // Recorded first: a trim that returns an error may have been committed.
            self.low_water_marks.insert(key.to_owned(), through);
            self.trimmed += self.store.trim(key, through).await?;
        }
        Ok(())
    }

    /// Reads the next page. Returns whether there may be more.
    async fn read_page(&mut self, key: &str) -> Result<bool, StoreError> {
        let after = self.account.last(key);
        let page = Store::<FleetEvent>::replay(&*self.store, key, after, PAGE).await?;
        let found = page.records.len();
        for record in page.records {
            let event = record.event.map_err(StoreError::other)?;
            self.account.record(Some(key), &BusEvent::Event(event.into()));
        }
        self.committed.0.fetch_add(found as u64, Ordering::Relaxed);
        Ok(found == PAGE)
    }

    fn low_water_mark(&self, key: &str) -> u64 {
        self.low_water_marks.get(key).copied().unwrap_or(0)
    }

    /// Checks a subscription's account against the store; returns how many events could be compared.
    pub(super) fn compare(&self, account: &Account) -> Result<u64, String> {
        self.account.compare(account, |key| self.low_water_mark(key))
    }
}

/// Faults may make the server unavailable for a while.
fn ignore_transient(error: StoreError) -> Result<(), StoreError> {
    if error.is_transient() { Ok(()) } else { Err(error) }
}

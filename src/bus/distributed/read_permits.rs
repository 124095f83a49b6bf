//! Limits how many connections reads occupy that may take long.

use tokio::sync::{Semaphore, SemaphorePermit};

/// The maximum number of concurrent reads of history, and of streams that are read on their own. A pool of three connections then has
/// one left for live reads.
const CONCURRENT_READS: usize = 2;

pub(super) struct ReadPermits {
    reads: Semaphore,
    /// For reads that have failed before. If every attempt takes as long as the store allows, they occupy one connection.
    retries: Semaphore,
}

/// Ends with its read.
pub(super) struct ReadPermit<'a> {
    _read: SemaphorePermit<'a>,
    _retry: Option<SemaphorePermit<'a>>,
}

impl ReadPermits {
    pub(super) fn new() -> Self {
        Self {
            reads: Semaphore::new(CONCURRENT_READS),
            retries: Semaphore::new(1),
        }
    }

    pub(super) async fn first(&self) -> ReadPermit<'_> {
        ReadPermit {
            _read: acquire(&self.reads).await,
            _retry: None,
        }
    }

    pub(super) async fn retry(&self) -> ReadPermit<'_> {
        let retry = acquire(&self.retries).await; // first, or waiting retries would keep the permits of others
        ReadPermit {
            _read: acquire(&self.reads).await,
            _retry: Some(retry),
        }
    }
}

async fn acquire(semaphore: &Semaphore) -> SemaphorePermit<'_> {
    semaphore.acquire().await.expect("these semaphores are never closed")
}

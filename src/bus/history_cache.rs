//! Caches the history that is read from the store for subscriptions that are behind. Subscriptions that need the same part share
//! one read.
//!
//! A stream's history is divided into pages at fixed numbers, so subscriptions at different places ask for the same page. Concurrent
//! requests for a page share one read. The page is then cached for `keep_for` only, because retention may remove its events from the
//! store, and later subscriptions must get a gap instead.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_core::future::BoxFuture;
use futures_util::FutureExt as _;
use futures_util::future::{Shared, WeakShared};
use parking_lot::Mutex;

use super::hub::StreamRef;
use crate::event::foreign;
use crate::store::{Page, Record};

/// The number of events in a page.
const PAGE_EVENTS: u64 = 256;

/// The maximum number of cached pages.
const MAX_CACHED_PAGES: usize = 64;

/// Reads at most `limit` records of a stream, after a number. Retries until the read succeeds. Returns `None` if the bus is shut
/// down first.
///
/// `empty_reads` is the number of reads in a row that have lacked the events for which the page is read. If it is not 0, the source waits
/// before it reads, the longer the higher it is.
pub(crate) trait HistorySource<E>: Send + Sync + 'static {
    fn read(&self, key: Arc<str>, after: u64, limit: usize, empty_reads: u32) -> BoxFuture<'static, Option<Page<E>>>;
}

/// The records of one page that existed when it was read.
pub(crate) struct HistoryPage<E> {
    pub(crate) records: Vec<HistoryRecord<E>>,
    pub(crate) low_water: u64,
    more: bool,
}

/// A record of the history: the event, or the reason why it cannot be decoded.
pub(crate) struct HistoryRecord<E> {
    pub(crate) seq: u64,
    pub(crate) event: Result<Arc<E>, Arc<str>>,
}

impl<E> HistoryPage<E> {
    /// Creates a page of the records with numbers up to `through`.
    fn from_page(mut page: Page<E>, through: u64) -> Self {
        let kept = page.records.partition_point(|record| record.seq <= through);
        page.more |= kept < page.records.len();
        page.records.truncate(kept);
        let record = |record: Record<E>| HistoryRecord {
            seq: record.seq,
            event: record.event.map(Arc::new).map_err(|error| error.reason.into()),
        };
        Self {
            low_water: page.low_water,
            more: page.more,
            records: page.records.into_iter().map(record).collect(),
        }
    }

    /// Returns `true` if the page shows what follows `seq`.
    fn reaches_beyond(&self, seq: u64) -> bool {
        self.low_water > seq || self.records.last().is_some_and(|last| last.seq > seq)
    }

    /// If the page was cut, the number after which the stream goes on.
    fn cut_after(&self) -> Option<u64> {
        let last = self.records.last().filter(|_| self.more)?;
        Some(last.seq)
    }
}

type Read<E> = BoxFuture<'static, Option<Arc<HistoryPage<E>>>>;

/// Completes with the page, or with `None` if the bus is shut down first.
pub(crate) type PageFetch<E> = Shared<Read<E>>;

/// A stream's version, and the number after which the page starts: a multiple of [`PAGE_EVENTS`], or the last number of a page that was
/// cut.
type PageId = (u64, u64);

pub(crate) struct HistoryCache<E> {
    source: Arc<dyn HistorySource<E>>,
    keep_for: Duration,
    cached: Mutex<Cached<E>>,
}

/// A cached page, and when it was read.
struct CachedPage<E> {
    page: Arc<HistoryPage<E>>,
    read_at: Instant,
}

struct Cached<E> {
    /// The reads under way, and the numbers up to which they return records.
    reads: HashMap<PageId, (WeakShared<Read<E>>, u64)>,
    pages: HashMap<PageId, CachedPage<E>>,
    /// The pages, the oldest first.
    order: VecDeque<PageId>,
}

impl<E: Send + Sync + 'static> HistoryCache<E> {
    /// Creates a cache that keeps pages for `keep_for`. If that is zero, only concurrent requests share a read.
    pub(crate) fn new(source: Arc<dyn HistorySource<E>>, keep_for: Duration) -> Arc<Self> {
        Arc::new(Self {
            source,
            keep_for,
            cached: Mutex::new(Cached {
                reads: HashMap::new(),
                pages: HashMap::new(),
                order: VecDeque::new(),
            }),
        })
    }

    /// Fetches the page that holds number `seq + 1`. If it has no record after `seq`, the store had none, or a server that lacks it has
    /// answered. `empty_reads` is the number of such answers in a row.
    ///
    /// The page has no records beyond `delivered`, the number up to which the hub has delivered this version of the stream. So a page, too,
    /// is of the history that the hub watches over: if that is replaced, the version changes.
    pub(crate) fn page_after(
        self: &Arc<Self>,
        stream: &StreamRef,
        seq: u64,
        delivered: u64,
        empty_reads: u32,
    ) -> PageFetch<E> {
        let first = seq - seq % PAGE_EVENTS;
        // A read that others have asked for may have been cut before `seq`.
        let mut start = if empty_reads == 0 { first } else { seq };
        let mut finished = foreign::DropLater::new(); // may be the last handle of a page
        let mut cached = self.cached.lock();
        while let Some(entry) = cached.pages.get(&(stream.version, start))
            && entry.read_at.elapsed() < self.keep_for
        {
            if entry.page.reaches_beyond(seq) {
                let page = Arc::clone(&entry.page);
                return futures_util::future::ready(Some(page)).boxed().shared();
            }
            match entry.page.cut_after() {
                Some(end) if end > start => start = end,
                _ => break,
            }
        }
        let id = (stream.version, start);
        if let Some((read, through)) = cached.reads.get(&id) {
            match read.upgrade() {
                Some(read) if read.peek().is_none() && *through > seq => return read,
                read => finished.0.extend(read),
            }
        }
        let this = Arc::clone(self);
        let key = Arc::clone(&stream.key);
        let read_after = move |start: u64, empty_reads| {
            let limit = first.saturating_add(PAGE_EVENTS).saturating_sub(start);
            let limit = usize::try_from(limit).expect("a page fits into memory");
            this.source.read(Arc::clone(&key), start, limit, empty_reads)
        };
        let this = Arc::clone(self);
        let read = async move {
            let mut id = id;
            loop {
                let page = Arc::new(HistoryPage::from_page(read_after(id.1, empty_reads).await?, delivered));
                this.insert(id, &page);
                match page.cut_after() {
                    Some(end) if end <= seq && id.1 < seq => id.1 = seq, // the store has cut it before `seq`
                    _ => return Some(page),
                }
            }
        };
        let fetch = read.boxed().shared();
        let read = fetch.downgrade().expect("not polled yet");
        cached.reads.insert(id, (read, delivered));
        fetch
    }

    fn insert(&self, id: PageId, page: &Arc<HistoryPage<E>>) {
        // With the events of their pages.
        let (mut finished, mut removed) = (foreign::DropLater::new(), foreign::DropLater::new());
        let mut cached = self.cached.lock();
        let cached = &mut *cached;
        cached.reads.retain(|_, (read, _)| {
            let read = read.upgrade();
            let is_running = read.as_ref().is_some_and(|read| read.peek().is_none());
            finished.0.extend(read);
            is_running
        });
        if self.keep_for.is_zero() {
            return;
        }
        let entry = CachedPage {
            page: Arc::clone(page),
            read_at: Instant::now(),
        };
        match cached.pages.insert(id, entry) {
            Some(replaced) => removed.0.push(replaced),
            None => cached.order.push_back(id),
        }
        while let Some(oldest) = cached.order.front() {
            if cached.order.len() <= MAX_CACHED_PAGES && cached.pages[oldest].read_at.elapsed() < self.keep_for {
                return;
            }
            removed.0.extend(cached.pages.remove(oldest));
            cached.order.pop_front();
        }
    }
}

//! History, read from the store for subscriptions that are behind: once for all that need the same part.
//!
//! A stream's history is cut into pages at fixed numbers, so that subscriptions at different places ask for the same one. Who comes
//! while a page is read waits for that read; who comes soon after finds the page in memory. Not for long: retention may have removed
//! its events from the store, and then subscriptions are to be told so.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_core::future::BoxFuture;
use futures_util::FutureExt as _;
use futures_util::future::{Shared, WeakShared};
use parking_lot::Mutex;

use super::hub::StreamRef;
use crate::store::Page;

/// Events of a page.
pub(crate) const PAGE_EVENTS: u64 = 256;

/// HistoryCache that are kept for who comes next.
const MAX_CACHED_PAGES: usize = 64;

/// Reads a stream: the records after a number, at most so many. Tries again until it succeeds, `None` if the bus ends before.
pub(crate) trait HistorySource<E>: Send + Sync + 'static {
    fn read(&self, key: Arc<str>, after: u64, limit: usize) -> BoxFuture<'static, Option<Page<E>>>;
}

/// Records of one page, as many as there were.
pub(crate) struct HistoryPage<E> {
    pub(crate) records: Vec<HistoryRecord<E>>,
    pub(crate) low_water: u64,
}

/// A record of the history.
pub(crate) struct HistoryRecord<E> {
    pub(crate) seq: u64,
    pub(crate) event: Result<Arc<E>, Arc<str>>,
}

impl<E> HistoryPage<E> {
    fn from_page(page: Page<E>) -> Self {
        let past = |record: crate::store::Record<E>| HistoryRecord {
            seq: record.seq,
            event: record.event.map(Arc::new).map_err(|error| error.reason.into()),
        };
        Self {
            low_water: page.low_water,
            records: page.records.into_iter().map(past).collect(),
        }
    }

    /// Whether it can tell what comes after `seq`.
    fn reaches_beyond(&self, seq: u64) -> bool {
        self.low_water > seq || self.records.last().is_some_and(|last| last.seq > seq)
    }
}

type Read<E> = BoxFuture<'static, Option<Arc<HistoryPage<E>>>>;

/// Completes with the page; `None` when the bus ends before.
pub(crate) type PageFetch<E> = Shared<Read<E>>;

/// A stream's version and a page number.
type PageId = (u64, u64);

pub(crate) struct HistoryCache<E> {
    source: Arc<dyn HistorySource<E>>,
    /// How long a page is kept for who comes next.
    keep_for: Duration,
    kept: Mutex<Cached<E>>,
}

/// A page in memory, and when it was read.
struct CachedPage<E> {
    history: Arc<HistoryPage<E>>,
    read_at: Instant,
}

struct Cached<E> {
    reading: HashMap<PageId, WeakShared<Read<E>>>,
    pages: HashMap<PageId, CachedPage<E>>,
    /// The oldest first.
    order: VecDeque<PageId>,
}

impl<E: Send + Sync + 'static> HistoryCache<E> {
    pub(crate) fn new(source: Arc<dyn HistorySource<E>>, keep_for: Duration) -> Arc<Self> {
        Arc::new(Self {
            source,
            keep_for,
            kept: Mutex::new(Cached {
                reading: HashMap::new(),
                pages: HashMap::new(),
                order: VecDeque::new(),
            }),
        })
    }

    /// The page with what comes after `seq`. May turn out to hold nothing after it: then the store held nothing.
    pub(crate) fn after(self: &Arc<Self>, stream: &StreamRef, seq: u64) -> PageFetch<E> {
        let number = seq / PAGE_EVENTS;
        let place = (stream.version, number);
        let mut kept = self.kept.lock();
        if let Some(page) = kept.pages.get(&place)
            && page.read_at.elapsed() < self.keep_for
            && page.history.reaches_beyond(seq)
        {
            let history = Arc::clone(&page.history);
            return futures_util::future::ready(Some(history)).boxed().shared();
        }
        if let Some(reading) = kept.reading.get(&place).and_then(WeakShared::upgrade)
            && reading.peek().is_none()
        {
            return reading;
        }
        let this = Arc::clone(self);
        let read = self.source.read(
            Arc::clone(&stream.key),
            number * PAGE_EVENTS,
            usize::try_from(PAGE_EVENTS).expect("a small number"),
        );
        let read = async move {
            let history = Arc::new(HistoryPage::from_page(read.await?));
            this.keep(place, &history);
            Some(history)
        };
        let fetch = read.boxed().shared();
        kept.reading.insert(place, fetch.downgrade().expect("not polled yet"));
        fetch
    }

    fn keep(&self, place: PageId, history: &Arc<HistoryPage<E>>) {
        let mut kept = self.kept.lock();
        let kept = &mut *kept;
        kept.reading
            .retain(|_, reading| reading.upgrade().is_some_and(|reading| reading.peek().is_none()));
        if self.keep_for.is_zero() {
            return;
        }
        let page = CachedPage {
            history: Arc::clone(history),
            read_at: Instant::now(),
        };
        if kept.pages.insert(place, page).is_none() {
            kept.order.push_back(place);
        }
        while let Some(oldest) = kept.order.front() {
            if kept.order.len() <= MAX_CACHED_PAGES && kept.pages[oldest].read_at.elapsed() < self.keep_for {
                return;
            }
            kept.pages.remove(oldest);
            kept.order.pop_front();
        }
    }
}

//! Events that are missing in the store, wherever they are in their stream, become gaps.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_core::future::BoxFuture;

use super::bus::drain;
use super::harness::SETTINGS;
use crate::bus::history_cache::{HistoryCache, HistorySource};
use crate::bus::hub::{Hub, StoredHistory, Verdict};
use crate::bus::{BusEvent, BusSubscription, FleetEvent, Gap, OnSlow, StreamEvent as _};
use crate::store::{Page, StreamHead};

const KEY: &str = "agent-1";
const HEAD: StreamHead = StreamHead {
    seq: 5_000_000_000,
    id: None,
};
const STORED: StoredHistory = StoredHistory {
    ids: Vec::new(),
    head: HEAD,
    low_water: 0,
    is_standby: false,
};

/// The numbers of one stream's events.
#[derive(Clone, Copy)]
struct Rows(&'static [u64]);

impl Rows {
    fn page(self, after: u64, limit: usize) -> Page<FleetEvent> {
        let event = |&seq: &u64| FleetEvent::custom(KEY, "n", "").with_seq(seq);
        let seqs = self.0.iter().filter(|&&seq| seq > after).take(limit);
        Page::from_events(seqs.map(event).collect())
    }
}

impl HistorySource<FleetEvent> for Rows {
    fn read(&self, _: Arc<str>, after: u64, limit: usize, _: u32) -> BoxFuture<'static, Option<Page<FleetEvent>>> {
        Box::pin(std::future::ready(Some(self.page(after, limit))))
    }
}

fn gap(first: u64, last: u64) -> Result<u64, Gap> {
    Err(Gap {
        stream_key: KEY.into(),
        seqs: first..=last,
    })
}

fn seqs(subscription: &mut BusSubscription) -> Vec<Result<u64, Gap>> {
    let seq = |item: BusEvent| match item {
        BusEvent::Event(event) => Ok(event.seq),
        BusEvent::Gap(gap) => Err(gap),
        other => panic!("{other:?}"),
    };
    drain(subscription).into_iter().map(seq).collect()
}

#[test]
fn missing_events_become_gaps_in_the_ring_and_in_the_history() {
    let rows = Rows(&[1, 2, 5, 6, 7, 8, 1000, 1001, 1002, 5_000_000_000]);
    let expected = [
        Ok(1),
        Ok(2),
        gap(3, 4),
        Ok(5),
        Ok(6),
        Ok(7),
        Ok(8),
        gap(9, 999),
        Ok(1000),
        Ok(1001),
        Ok(1002),
        gap(1003, 4_999_999_999),
        Ok(5_000_000_000),
    ];
    // A slow subscription finds only the last items in the ring, and reads the rest from the history.
    for receives_at_once in [true, false] {
        let hub = Arc::new(Hub::new(SETTINGS, Arc::default(), Box::new(|_| {})));
        let history = HistoryCache::new(Arc::new(rows), Duration::from_secs(10));
        let subscribe = |all: bool, after: Option<u64>| {
            let attached = if all {
                hub.attach_all()
            } else {
                hub.attach_one(KEY, after)
            };
            let attached = attached.expect("the hub is open");
            if after.is_some() {
                let unstarted = hub.unstarted(1).into_iter();
                let heads: Vec<_> = unstarted.map(|stream| (stream, HEAD)).collect();
                hub.signal(hub.start(heads));
            }
            BusSubscription::new(Arc::clone(&hub), Arc::clone(&history), attached, after, OnSlow::Replay)
        };
        let mut subscriptions = [subscribe(false, None), subscribe(true, None)];
        hub.signal(hub.set_baseline(Some(HashMap::new())));
        let mut received = [Vec::new(), Vec::new()];
        hub.on_notification(KEY, 1..=5_000_000_000);
        for limit in [1, 2, 3, 4] {
            let mut doubts = 1;
            while doubts > 0 {
                for read in hub.take_reads(1, |_| true) {
                    let page = rows.page(read.after, limit);
                    hub.deliver(read, page, limit);
                }
                // A hole may be that of another history.
                let comparisons = hub.take_doubts(1);
                doubts = comparisons.len();
                for comparison in comparisons {
                    assert_eq!(hub.settle(&comparison, &STORED), Verdict::Same);
                }
            }
            if receives_at_once {
                for (subscription, received) in subscriptions.iter_mut().zip(&mut received) {
                    received.extend(seqs(subscription));
                }
            }
        }
        assert!(hub.take_reads(1, |_| true).is_empty());
        for (subscription, mut received) in subscriptions.iter_mut().zip(received) {
            received.extend(seqs(subscription));
            assert_eq!(received, expected, "{receives_at_once}");
        }
        // A subscriber resumes after an event, in a gap, or after one.
        for (after, missed) in [(2, 2), (3, 2), (4, 3), (998, 7), (999, 8), (5_000_000_000, 13)] {
            let mut expected = expected[missed..].to_vec();
            if let Some(Err(gap)) = expected.first_mut() {
                gap.seqs = after + 1..=*gap.seqs.end();
            }
            assert_eq!(seqs(&mut subscribe(false, Some(after))), expected, "{after}");
        }
    }
}

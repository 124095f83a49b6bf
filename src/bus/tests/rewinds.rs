//! Subscriptions whose history is replaced, and other cases in which the ring alone would hide events.

use std::sync::Arc;

use futures_core::future::BoxFuture;
use futures_util::FutureExt as _;

use super::bus::{Bus, at, drain};
use crate::bus::history_cache::HistorySource;
use crate::bus::hub::{Comparison, Hub, StoredHistory, Verdict};
use crate::bus::{BusEvent, FleetEvent, OnSlow, Rewound, StreamEvent as _};
use crate::store::{MemoryStore, Page, Record, Store as _};

/// Replaces events by their numbers.
fn seqs(items: Vec<BusEvent>) -> Vec<Result<u64, BusEvent>> {
    let seq = |item: BusEvent| match item {
        BusEvent::Event(event) => Ok(event.seq),
        other => Err(other),
    };
    items.into_iter().map(seq).collect()
}

fn rewound(delivered: u64, resume_after: u64, exact: bool) -> Result<u64, BusEvent> {
    let stream_key = "stream:0".into();
    Err(BusEvent::Rewound(Rewound {
        stream_key,
        delivered,
        resume_after,
        exact,
    }))
}

#[test]
fn a_subscription_that_delivered_lost_events_gets_rewound() {
    let bus = Bus::new();
    let mut ahead = bus.subscribe("stream:0", OnSlow::Replay);
    let mut behind = bus.subscribe("stream:0", OnSlow::Replay);
    bus.append("stream:0", 2);
    assert_eq!(seqs(drain(&mut ahead)), [Ok(1), Ok(2)]);
    bus.rewind("stream:0", 1, true);
    assert_eq!(seqs(drain(&mut ahead)), [rewound(2, 1, true), Ok(2)]);
    // In the ring the old second event precedes the notice, so it is delivered first.
    assert_eq!(seqs(drain(&mut behind)), [Ok(1), Ok(2), rewound(2, 1, true), Ok(2)]);
}

#[test]
fn a_subscription_that_missed_the_notice_gets_rewound() {
    for all in [false, true] {
        let bus = Bus::new();
        let mut slow = if all {
            bus.subscribe_all()
        } else {
            bus.subscribe("stream:0", OnSlow::Replay)
        };
        bus.append("stream:0", 3);
        assert_eq!(seqs(drain(&mut slow)), [Ok(1), Ok(2), Ok(3)]);
        bus.rewind("stream:0", 1, false);
        for _ in 0..20 {
            bus.append("stream:0", 1);
        }
        let mut expected = vec![rewound(3, 1, false)];
        expected.extend((2..=23).map(Ok));
        assert_eq!(seqs(drain(&mut slow)), expected, "all: {all}");
        bus.append("stream:0", 1);
        assert_eq!(seqs(drain(&mut slow)), [Ok(24)]);
    }
}

#[test]
fn a_late_notification_reaches_a_subscription_that_missed_the_notice() {
    let bus = Bus::new();
    bus.store
        .append_now(crate::bus::FleetEvent::custom("stream:0", "n", ""))
        .unwrap();
    let mut slow = bus.subscribe("stream:0", OnSlow::Replay);
    bus.hub.on_notification("stream:0", 1..=1);
    for _ in 0..20 {
        bus.append("stream:0", 1);
    }
    assert_eq!(seqs(drain(&mut slow)), (1..=21).map(Ok).collect::<Vec<_>>());
}

#[test]
fn a_late_notification_moves_no_start_after_it() {
    for all in [false, true] {
        let bus = Bus::new();
        let subscribe = |bus: &Bus| match all {
            true => bus.subscribe_all(),
            false => bus.subscribe("stream:0", OnSlow::Replay),
        };
        // Its stream is known before the event, so its start is not that of the others.
        let _known = bus.subscribe("stream:0", OnSlow::Replay);
        bus.append("stream:0", 1);
        let mut earlier = subscribe(&bus);
        bus.hub.on_notification("stream:0", 1..=1);
        bus.append("stream:0", 20);
        let mut later = subscribe(&bus);
        bus.append("stream:0", 20);
        assert_eq!(
            seqs(drain(&mut later)),
            (22..=41).map(Ok).collect::<Vec<_>>(),
            "all: {all}"
        );
        assert_eq!(
            seqs(drain(&mut earlier)),
            (1..=41).map(Ok).collect::<Vec<_>>(),
            "all: {all}"
        );
    }
}

#[test]
fn a_subscription_that_missed_several_notices_starts_after_the_lowest_number() {
    let bus = Bus::new();
    let append = |events| {
        for _ in 0..events {
            let event = FleetEvent::custom("stream:0", "n", "");
            bus.store.append_now(event).expect("the key is valid");
        }
    };
    append(2);
    let mut slow = bus.subscribe("stream:0", OnSlow::Replay);
    bus.hub.on_notification("stream:0", 1..=1);
    bus.read();
    let mut fresh = Vec::new();
    for seq in 3..60 {
        bus.append("stream:0", 1);
        fresh.push(bus.subscribe("stream:0", OnSlow::Replay));
        bus.hub.on_notification("stream:0", seq..=seq);
        bus.read();
    }
    assert_eq!(seqs(drain(&mut slow)), (1..=59).map(Ok).collect::<Vec<_>>());
    let last = fresh.last_mut().expect("there are several");
    assert_eq!(seqs(drain(last)), [Ok(59)]);
}

#[test]
fn a_ring_full_of_notices_hides_no_event() {
    for (on_slow, expected) in [
        (OnSlow::Replay, vec![Ok(1), Ok(2)]),
        (OnSlow::Report, vec![Err(BusEvent::Lagged(2))]),
    ] {
        let bus = Bus::new();
        let mut slow = bus.subscribe("stream:0", on_slow);
        bus.append("stream:0", 2);
        for _ in 0..20 {
            let mut fresh = bus.subscribe("stream:0", on_slow);
            bus.hub.on_notification("stream:0", 1..=1);
            bus.read();
            assert_eq!(seqs(drain(&mut fresh)), [Ok(1), Ok(2)]);
        }
        assert_eq!(seqs(drain(&mut slow)), expected, "{on_slow:?}");
    }
}

#[test]
fn an_undecodable_event_keeps_its_place() {
    let bus = Bus::new();
    let mut subscription = bus.subscribe("stream:0", OnSlow::Replay);
    bus.append("stream:0", 1);
    bus.hub.on_notification("stream:0", 2..=2);
    let read = bus.hub.take_reads(1, |_| true).pop().unwrap();
    let record = Record {
        seq: 2,
        id: None,
        previous_id: None,
        appended_at: None,
        event: Err(crate::store::Undecodable {
            reason: "new".to_owned(),
        }),
    };
    bus.hub.deliver(
        read,
        Page {
            records: vec![record],
            low_water: 0,
            low_water_id: None,
            more: false,
        },
        10,
    );
    let undecodable = BusEvent::Undecodable {
        stream_key: "stream:0".into(),
        seq: 2,
        reason: "new".into(),
    };
    assert_eq!(seqs(drain(&mut subscription)), [Ok(1), Err(undecodable)]);
}

#[test]
fn removed_events_become_a_gap() {
    let bus = Bus::new();
    let mut subscription = bus.subscribe("stream:0", OnSlow::Replay);
    for _ in 0..20 {
        bus.append("stream:0", 1);
    }
    bus.store.trim_now("stream:0", 10);
    let gap = BusEvent::Gap(crate::bus::Gap {
        stream_key: "stream:0".into(),
        seqs: 1..=10,
    });
    let mut expected = vec![Err(gap)];
    expected.extend((11..=20).map(Ok));
    assert_eq!(seqs(drain(&mut subscription)), expected);
}

#[test]
fn no_event_of_the_old_history_comes_after_the_new_one() {
    let bus = Bus::new();
    let mut slow = bus.subscribe("stream:0", OnSlow::Replay);
    bus.append("stream:0", 6);
    bus.hub.on_notification("stream:0", 7..=7);
    let seventh = |data| FleetEvent::custom("stream:0", "n", data).with_seq(7);
    let deliver = |event| {
        let read = bus
            .hub
            .take_reads(1, |_| true)
            .pop()
            .expect("the stream has a pending read");
        bus.hub.deliver(read, Page::from_events(vec![event]), 10);
    };
    deliver(seventh("old"));
    let cursor = bus.hub.cursors(true).pop().expect("there is one stream");
    bus.hub.rewind(&cursor.stream, at(6), true, 7);
    deliver(seventh("new"));
    // The ring has lost the first events, and holds the old seventh, the notice and the new one.
    let mut items = drain(&mut slow);
    assert_eq!(items.pop(), Some(BusEvent::Event(seventh("new").into())));
    assert_eq!(seqs(items), (1..=6).map(Ok).collect::<Vec<_>>());
}

/// A store that loses its events when their history is read, and has new ones in their place.
struct LosesEvents {
    store: MemoryStore,
    hub: Arc<Hub<FleetEvent>>,
    new: MemoryStore,
}

impl HistorySource<FleetEvent> for LosesEvents {
    fn read(
        &self,
        key: Arc<str>,
        after: u64,
        limit: usize,
        empty_reads: u32,
    ) -> BoxFuture<'static, Option<Page<FleetEvent>>> {
        assert_eq!(empty_reads, 0, "the rewind ends the reads of the old history");
        let cursor = self.hub.cursors(true).pop().expect("there is one stream");
        let is_replaced = cursor.seq < self.store.high_water_now(&key);
        let page = self.new.replay_now(&key, after, limit);
        if is_replaced {
            return Box::pin(std::future::ready(Some(page)));
        }
        self.hub
            .rewind(&cursor.stream, at(1), true, self.new.high_water_now(&key));
        let read = self
            .hub
            .take_reads(1, |_| true)
            .pop()
            .expect("the new history is wanted");
        let live = self.new.replay_now(&key, read.after, 100).records.into_iter();
        // Without ids: the first event is the same in both stores.
        let live = live.map(|record| record.event.expect("it can be decoded")).collect();
        self.hub.deliver(read, Page::from_events(live), 100);
        Box::pin(std::future::ready(Some(Page::from_events(Vec::new()))))
    }
}

/// The notice of the rewind is behind the item that waits for the history.
#[test]
fn a_rewind_ends_the_search_for_lost_events() {
    for all in [false, true] {
        let bus = Bus::new();
        let new = MemoryStore::new();
        let append = |store: &MemoryStore, text| {
            let appended = store.append_now(FleetEvent::custom("stream:0", "n", text));
            appended.expect("the key is valid")
        };
        let first = append(&new, "first");
        append(&new, "new");
        let source = LosesEvents {
            store: bus.store.clone(),
            hub: Arc::clone(&bus.hub),
            new,
        };
        let mut slow = bus.subscribe_with_history(all, source);
        append(&bus.store, "first");
        bus.append("stream:0", 9);
        let items = drain(&mut slow);
        let expected = [
            BusEvent::Event(first.into()),
            BusEvent::Event(FleetEvent::custom("stream:0", "n", "new").with_seq(2).into()),
        ];
        assert_eq!(items, expected, "all: {all}");
    }
}

/// A doubt is settled while nothing is to be read. The history is replaced afterwards, by a longer one.
#[test]
fn what_was_confirmed_before_proves_nothing_later() {
    let bus = Bus::new();
    let mut subscription = bus.subscribe("stream:0", OnSlow::Replay);
    bus.append("stream:0", 2);
    assert_eq!(seqs(drain(&mut subscription)), [Ok(1), Ok(2)]);
    let cursor = bus.hub.cursors(true).pop().expect("there is one stream");
    bus.hub.report_head(&cursor, at(1), false);
    let stored = |store: &MemoryStore, comparison: &Comparison| {
        let key: Arc<str> = "stream:0".into();
        let id = |seq| {
            let ids = store.event_ids(&[(Arc::clone(&key), seq)]).now_or_never();
            ids.expect("it is in memory").expect("it answers")[0]
        };
        StoredHistory {
            ids: comparison.seqs().map(id).collect(),
            head: at(store.high_water_now(&key)),
            low_water: 0,
            is_standby: false,
        }
    };
    let settle = |store: &MemoryStore| {
        let comparison = bus.hub.take_doubts(1).pop().expect("the stream is in doubt");
        bus.hub.settle(&comparison, &stored(store, &comparison))
    };
    assert_eq!(settle(&bus.store), Verdict::Same);
    let other = MemoryStore::new();
    for _ in 0..3 {
        let appended = other.append_now(FleetEvent::custom("stream:0", "n", "other"));
        appended.expect("the key is valid");
    }
    bus.hub.on_notification("stream:0", 3..=3);
    let read = bus
        .hub
        .take_reads(1, |_| true)
        .pop()
        .expect("the third event is wanted");
    bus.hub.deliver(read, other.replay_now("stream:0", 2, 100), 100);
    assert!(drain(&mut subscription).is_empty());
    assert_eq!(
        settle(&other),
        Verdict::Replaced {
            resume_after: 0,
            exact: true
        }
    );
    let read = bus
        .hub
        .take_reads(1, |_| true)
        .pop()
        .expect("the new history is wanted");
    bus.hub.deliver(read, other.replay_now("stream:0", 0, 100), 100);
    assert_eq!(
        seqs(drain(&mut subscription)),
        [rewound(2, 0, true), Ok(1), Ok(2), Ok(3)]
    );
}

//! Subscriptions whose history is replaced, and other cases in which the ring alone would hide events.

use super::bus::{Bus, drain};
use crate::bus::{BusEvent, FleetEvent, OnSlow, Rewound, StreamEvent as _};
use crate::store::{Page, Record};

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
    let read = bus.hub.take_reads(1).pop().unwrap();
    let record = Record {
        seq: 2,
        id: None,
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
        let read = bus.hub.take_reads(1).pop().expect("the stream has a pending read");
        bus.hub.deliver(read, Page::from_events(vec![event]), 10);
    };
    deliver(seventh("old"));
    let cursor = bus.hub.cursors(true).pop().expect("there is one stream");
    bus.hub.rewind(&cursor.stream, 6, true, 7);
    deliver(seventh("new"));
    // The ring has lost the first events, and holds the old seventh, the notice and the new one.
    let mut items = drain(&mut slow);
    assert_eq!(items.pop(), Some(BusEvent::Event(seventh("new").into())));
    assert_eq!(seqs(items), (1..=6).map(Ok).collect::<Vec<_>>());
}

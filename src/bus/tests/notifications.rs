//! Notifications of streams that the hub does not know.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::harness::SETTINGS;
use crate::bus::FleetEvent;
use crate::bus::hub::{Hub, Work};
use crate::store::StreamHead;

fn key(stream: usize) -> String {
    format!("stream:{stream}")
}

#[test]
fn a_full_table_of_unknown_streams_wakes_the_sweeper_once() {
    let sweeps = Arc::new(AtomicU64::new(0));
    let requested = Arc::clone(&sweeps);
    let wakeup = move |work| {
        requested.fetch_add(u64::from(work == Work::Sweep), Ordering::Relaxed); // one thread
    };
    let hub = Hub::<FleetEvent>::new(SETTINGS, Arc::default(), Box::new(wakeup));
    let _all = hub.attach_all().unwrap();
    hub.signal(hub.set_baseline(Some(HashMap::new())));
    let notify = |stream| hub.on_notification(&key(stream), 1..=1);
    for stream in 0..SETTINGS.pending_streams {
        notify(stream);
    }
    assert_eq!(sweeps.load(Ordering::Relaxed), 0);
    for stream in 0..10 {
        notify(SETTINGS.pending_streams + stream);
    }
    assert_eq!(sweeps.load(Ordering::Relaxed), 1);
    assert!(hub.take_sweep_request());
    notify(100);
    assert_eq!(sweeps.load(Ordering::Relaxed), 2);
}

#[test]
fn late_notifications_that_concern_no_subscription_use_up_no_checks() {
    let hub = Hub::<FleetEvent>::new(SETTINGS, Arc::default(), Box::new(|_| {}));
    let all = hub.attach_all().unwrap();
    let head = StreamHead { seq: 1, id: None };
    let heads = (0..3).map(|stream| (Arc::from(key(stream)), head)).collect();
    hub.signal(hub.set_baseline(Some(heads)));
    // The last subscription starts at once, those after a number wait for the store.
    let _subscriptions = [(0, Some(1)), (1, Some(1)), (2, None)].map(|(stream, after)| {
        let attached = hub.attach_one(&key(stream), after).unwrap();
        hub.on_notification(&key(stream), 1..=1);
        attached
    });
    hub.detach(None, &all.start);
    let checks = hub.take_late_checks(1);
    assert_eq!(checks.len(), 1);
    assert_eq!(*checks[0].range.stream_key, key(2));
    assert!(!hub.has_pending_reads());
}

//! The bus within one process: wakers and event types whose code calls the bus, or panics.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;

use doorbell::bus::{BusError, BusEvent, BusSubscription, EventBus as _, LocalBus, StreamEvent, SubscribeOptions};
use doorbell::store::{MemoryRetention, MemoryStore};
use futures::executor::block_on;
use serde::{Deserialize, Serialize};
use testkit::panics::planned_panic;
use testkit::threads::must_end;
use testkit::wakers::{PanicsIn, callback_waker, panicking_waker};

type Hook = Arc<dyn Fn() + Send + Sync>;

/// An event that runs a hook when it is cloned and when it is dropped.
#[derive(Serialize, Deserialize)]
struct Hooked {
    key: String,
    seq: u64,
    #[serde(skip)]
    on_clone: Option<Hook>,
    #[serde(skip)]
    on_drop: Option<Hook>,
}

impl Hooked {
    fn plain(key: &str) -> Self {
        Self {
            key: key.to_owned(),
            seq: 0,
            on_clone: None,
            on_drop: None,
        }
    }
}

impl Clone for Hooked {
    fn clone(&self) -> Self {
        if let Some(on_clone) = &self.on_clone {
            on_clone();
        }
        Self {
            key: self.key.clone(),
            seq: self.seq,
            on_clone: self.on_clone.clone(),
            on_drop: self.on_drop.clone(),
        }
    }
}

impl Drop for Hooked {
    fn drop(&mut self) {
        if let Some(on_drop) = self.on_drop.take() {
            on_drop();
        }
    }
}

impl StreamEvent for Hooked {
    fn stream_key(&self) -> &str {
        &self.key
    }

    fn seq(&self) -> u64 {
        self.seq
    }

    fn with_seq(mut self, seq: u64) -> Self {
        self.seq = seq;
        self
    }
}

/// A bus whose store and rings soon drop events.
fn small_bus() -> LocalBus<Hooked> {
    let per_stream = 2.try_into().unwrap();
    LocalBus::over(MemoryStore::with_retention(MemoryRetention {
        per_stream,
        ..MemoryRetention::default()
    }))
}

fn poll(subscription: &mut BusSubscription<Hooked>, waker: &Waker) -> Poll<Option<BusEvent<Hooked>>> {
    subscription.poll_recv(&mut Context::from_waker(waker))
}

/// Receives what is ready, up to an event without a successor. Events may be removed from the store before they are received.
fn last_number(subscription: &mut BusSubscription<Hooked>) -> u64 {
    let mut last = 0;
    while let Poll::Ready(Some(item)) = poll(subscription, Waker::noop()) {
        let number = match &item {
            BusEvent::Event(event) => event.seq,
            BusEvent::Gap(gap) => *gap.seqs.end(),
            other => panic!("{other:?}"),
        };
        assert!(number > last, "{number} after {last}");
        last = number;
    }
    last
}

impl std::fmt::Debug for Hooked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.key, self.seq)
    }
}

/// A subscription publishes what other threads have queued. A waker that publishes must find no lock held.
#[test]
fn a_waker_may_publish_and_subscribe_while_other_threads_do() {
    must_end(|| {
        let bus = small_bus();
        let stop = Arc::new(AtomicBool::new(false));
        let woken = Arc::new(AtomicU64::new(0));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        bus.publish(Hooked::plain("busy"));
                        thread::yield_now();
                    }
                });
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        drop((bus.subscribe("other"), bus.subscribe_all()));
                    }
                });
            }
            let (there, wakes) = (bus.clone(), Arc::clone(&woken));
            let on_wake = move || {
                there.publish(Hooked::plain("woken"));
                drop((there.subscribe("woken"), there.subscribe_all()));
                wakes.fetch_add(1, Ordering::Relaxed); // a counter, and a flag on its own
            };
            let waker = callback_waker(on_wake, || {});
            while woken.load(Ordering::Relaxed) < 1000 {
                let seen = woken.load(Ordering::Relaxed);
                let mut subscription = bus.subscribe("busy");
                while poll(&mut subscription, &waker).is_ready() {}
                while woken.load(Ordering::Relaxed) == seen {
                    thread::yield_now();
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!(bus.store().high_water_now("woken") >= 1000);
    });
}

#[test]
fn the_code_of_an_event_may_call_the_bus() {
    must_end(|| {
        let bus = small_bus();
        let (mut one, mut all) = (bus.subscribe("agent-1"), bus.subscribe_all());
        let calls = Arc::new(AtomicU64::new(0));
        let there = bus.clone();
        let call: Hook = Arc::new(move || {
            if calls.fetch_add(1, Ordering::Relaxed) < 10_000 {
                there.publish(Hooked::plain("agent-2"));
                let _ = (there.subscribe("agent-2"), there.subscribe_all());
            }
        });
        for _ in 0..2000 {
            let mut event = Hooked::plain("agent-1");
            (event.on_clone, event.on_drop) = (Some(Arc::clone(&call)), Some(Arc::clone(&call)));
            bus.publish(event);
            // History is read and cloned here, and streams without subscriptions are removed.
            let _ = poll(&mut bus.subscribe_from("agent-1", 0), Waker::noop());
        }
        assert_eq!(last_number(&mut one), 2000);
        assert!(poll(&mut all, Waker::noop()).is_ready());
        assert!(bus.store().high_water_now("agent-2") >= 10_000);
    });
}

/// Neither the caller of `publish` nor other subscriptions suffer.
#[test]
fn panics_of_wakers_and_of_dropped_events_affect_nobody_else() {
    must_end(|| {
        let bus = small_bus();
        let mut other = bus.subscribe("agent-1");
        let mut panics = bus.subscribe("agent-1");
        let panicked = Arc::new(AtomicU64::new(0));
        for n in 1..=600 {
            let (waker, _) = panicking_waker(PanicsIn::Wake);
            while poll(&mut panics, &waker).is_ready() {}
            let (drops, panicked) = (AtomicU64::new(0), Arc::clone(&panicked));
            let mut event = Hooked::plain("agent-1");
            // The first drop is that of the caller's own event. One later drop panics, in the store or in a ring.
            event.on_drop = Some(Arc::new(move || {
                if drops.fetch_add(1, Ordering::Relaxed) == 1 && n <= 300 {
                    panicked.fetch_add(1, Ordering::Relaxed); // counters on their own
                    planned_panic();
                }
            }));
            bus.publish(event);
            assert_eq!(bus.store().high_water_now("agent-1"), n);
        }
        assert_eq!(last_number(&mut other), 600);
        assert_eq!(panicked.load(Ordering::Relaxed), 300);
    });
}

/// Threads that append to one stream may deliver out of order; the one that comes last delivers all.
#[test]
fn a_stream_that_several_threads_append_to_is_delivered_in_order() {
    must_end(|| {
        let bus = LocalBus::<Hooked>::default();
        let mut subscriptions = [bus.subscribe("agent-1"), bus.subscribe_all()];
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        bus.publish(Hooked::plain("agent-1"));
                    }
                });
            }
        });
        for subscription in &mut subscriptions {
            for expected in 1..=4000 {
                let Poll::Ready(Some(BusEvent::Event(event))) = poll(subscription, Waker::noop()) else {
                    panic!("event {expected} is missing");
                };
                assert_eq!(event.seq, expected);
            }
            assert!(poll(subscription, Waker::noop()).is_pending());
        }
    });
}

/// Before and after others have subscribed to the stream.
#[test]
fn a_start_beyond_the_end_of_a_stream_is_a_rewind() {
    let bus = LocalBus::<Hooked>::default();
    for _ in 0..2 {
        bus.publish(Hooked::plain("agent-1"));
    }
    let mut subscriptions = [
        bus.subscribe_from("agent-1", 5),
        bus.subscribe_from("agent-1", 5),
        bus.subscribe_from("agent-1", u64::MAX),
    ];
    for _ in 0..4 {
        bus.publish(Hooked::plain("agent-1"));
    }
    for (subscription, delivered) in subscriptions.iter_mut().zip([5, 5, u64::MAX]) {
        let Poll::Ready(Some(BusEvent::Rewound(rewound))) = poll(subscription, Waker::noop()) else {
            panic!("no rewind");
        };
        assert_eq!((rewound.delivered, rewound.resume_after), (delivered, 2));
        for expected in 3..=6 {
            let Poll::Ready(Some(BusEvent::Event(event))) = poll(subscription, Waker::noop()) else {
                panic!("event {expected} is missing");
            };
            assert_eq!(event.seq, expected);
        }
    }
}

#[test]
fn a_subscription_to_all_streams_cannot_start_after_a_number() {
    let bus = LocalBus::new();
    let subscription = bus.subscribe_all_with(SubscribeOptions::new().after(3));
    let error = block_on(subscription.ready()).unwrap_err();
    assert!(
        matches!(error, BusError::InvalidSetting { setting: "after", .. }),
        "{error}"
    );
}

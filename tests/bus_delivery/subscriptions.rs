//! Concurrent, short-lived and resumed subscriptions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use doorbell::bus::{BusEvent, EventBus as _};
use doorbell::store::Store as _;
use throwaway_postgres::Database;

use crate::bus_support::progress::Progress;
use crate::bus_support::{builder, bus, expect, held, note, store};
use testkit::proxy::{Fault, Proxy};

/// Two subscriptions wait for one LISTEN, which the server refuses: each fails or works; none is left without notifications.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p05_two_subscribers_share_the_failure_of_the_first_listen() {
    let server = throwaway_postgres::Server::start().unwrap();
    let proxy = Proxy::start(server.port()).await.unwrap();
    let store = store(&server.url()).await;
    let there = bus(&server.url()).await;
    let refusal = Fault::Refuse("58P01", "could not access status of transaction 0");
    proxy.on("LISTEN", [refusal]);
    let here = builder(&server.url(), &store)
        .listen(crate::bus_support::listener(&proxy.url("postgres")))
        .start()
        .unwrap();
    let (one, other) = tokio::join!(here.subscribe_all_ready(), here.subscribe_all_ready());
    // Every subscription that was returned must work.
    let mut subscribed: Vec<_> = [one, other].into_iter().flatten().collect();
    subscribed.push(here.subscribe_all_ready().await.unwrap());
    for seq in 1..=5 {
        there.append_and_publish(note("agent-1", "hello")).await.unwrap();
        for subscription in &mut subscribed {
            expect(subscription, "agent-1", seq..=seq).await;
        }
    }
    assert!(proxy.seen("LISTEN") >= 2, "the first was refused, and another came");
    assert!(here.stats().notifications_received >= 1);
}

/// Thousands subscribe and unsubscribe while events flow. A ready subscription misses nothing, and a dropped one leaves nothing behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p06_churn_loses_no_event_and_leaks_no_registration() {
    const CHURNERS: u64 = 8;
    const ROUNDS: u64 = 500;
    let database = Database::fresh().unwrap();
    let (here, there) = (bus(&database.url()).await, bus(&database.url()).await);
    let steady = here.subscribe("agent-1");
    steady.ready().await.unwrap();
    let mut steady = Progress::of(steady, 1);
    let (committed, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let writer = tokio::spawn({
        let (there, committed, done) = (there.clone(), committed.clone(), done.clone());
        async move {
            while !done.load(Ordering::SeqCst) {
                let stamped = there.append_and_publish(note("agent-1", "hello")).await.unwrap();
                committed.store(stamped.seq, Ordering::SeqCst);
            }
            committed.load(Ordering::SeqCst)
        }
    });
    let churners: Vec<_> = (0..CHURNERS)
        .map(|churner| {
            let (here, committed) = (here.clone(), committed.clone());
            tokio::spawn(async move {
                for round in 0..ROUNDS {
                    let mut subscription = here.subscribe("agent-1");
                    if (round + churner) % 3 == 0 {
                        continue; // dropped before it is ready
                    }
                    subscription.ready().await.unwrap();
                    if (round + churner) % 16 != 1 {
                        continue; // most take no event, so that thousands come per second
                    }
                    let known = committed.load(Ordering::SeqCst);
                    let mut last = None;
                    for _ in 0..3 {
                        let BusEvent::Event(event) = crate::bus_support::next(&mut subscription).await else {
                            panic!("an event")
                        };
                        match last {
                            // The writer may have committed one more than it has reported.
                            None => assert!(event.seq <= known + 2, "{} after {known}", event.seq),
                            Some(last) => assert_eq!(event.seq, last + 1),
                        }
                        last = Some(event.seq);
                    }
                }
            })
        })
        .collect();
    for churner in churners {
        churner.await.unwrap();
    }
    done.store(true, Ordering::SeqCst);
    let last = writer.await.unwrap();
    steady.reaches("agent-1", last).await;
    assert_eq!(held(&here), (1, 1), "the steady one");
}

/// A subscriber that has received more than a restored database holds must be told, or it would miss the events that take the numbers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_beyond_the_end_of_a_stream_is_a_rewind_whenever_it_is_polled() {
    let database = Database::fresh().unwrap();
    let store = store(&database.url()).await;
    let bus = builder(&database.url(), &store).connect().await.unwrap();
    for (stream, has_others) in [("agent-1", false), ("agent-2", true)] {
        let resident = has_others.then(|| bus.subscribe(stream));
        if let Some(resident) = &resident {
            resident.ready().await.unwrap();
        }
        for _ in 0..2 {
            store.append(note(stream, "no notification")).await.unwrap();
        }
        let mut resumed = bus.subscribe_from(stream, 5);
        let mut at_the_end = bus.subscribe_from(stream, 2);
        resumed.ready().await.unwrap();
        at_the_end.ready().await.unwrap();
        // Before the first poll, the stream grows beyond the number.
        for _ in 0..4 {
            bus.append_and_publish(note(stream, "hello")).await.unwrap();
        }
        let item = crate::bus_support::next(&mut resumed).await;
        let BusEvent::Rewound(rewound) = &item else {
            panic!("{item:?}");
        };
        assert_eq!((rewound.delivered, rewound.resume_after, rewound.exact), (5, 2, false));
        expect(&mut resumed, stream, 3..=6).await;
        expect(&mut at_the_end, stream, 3..=6).await;
    }
}

/// A subscriber resumes after an event that another process delivered and this one has not seen yet. Nothing is repeated, and
/// no rewind is reported.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscriber_resumes_after_an_event_that_this_process_has_not_seen() {
    let database = Database::fresh().unwrap();
    let store = store(&database.url()).await;
    let here = builder(&database.url(), &store).connect().await.unwrap();
    let mut resident = here.subscribe("agent-1");
    resident.ready().await.unwrap();
    for _ in 0..3 {
        store.append(note("agent-1", "no notification")).await.unwrap();
    }
    let mut returning = here.subscribe_from("agent-1", 3);
    returning.ready().await.unwrap();
    // Events without a notification arrive with the next notification or sweep at the latest.
    let mut between = here.subscribe_from("agent-1", 1);
    between.ready().await.unwrap();
    crate::bus_support::expect_nothing(&mut returning);
    // The store has no such event, so its history must have changed.
    let mut elsewhere = here.subscribe_from("agent-1", 4);
    let item = crate::bus_support::next(&mut elsewhere).await;
    assert!(
        matches!(&item, BusEvent::Rewound(rewound) if rewound.delivered == 4 && !rewound.exact),
        "{item:?}"
    );
    here.append_and_publish(note("agent-1", "hello")).await.unwrap();
    expect(&mut returning, "agent-1", 4..=4).await;
    expect(&mut between, "agent-1", 2..=4).await;
    expect(&mut resident, "agent-1", 1..=4).await;
}

//! Subscriptions that come and go, and those that come together.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use doorbell::bus::{BusEvent, EventBus as _};
use doorbell::store::Store as _;
use throwaway_postgres::Database;

use crate::bus_support::progress::Progress;
use crate::bus_support::{builder, bus, expect, held, note, store};
use testkit::proxy::{Fault, Proxy};

/// Two at the same time, and the LISTEN that both wait for is refused: both are told, or both hear. Nobody is left deaf.
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
    // Neither of those that got a subscription may be deaf.
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

/// Thousands come and go while events flow. Whoever is ready misses nothing from there on, and whoever goes leaves nothing behind.
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
                        continue; // gone before it was ready
                    }
                    subscription.ready().await.unwrap();
                    if (round + churner) % 16 != 1 {
                        continue; // thousands a second: most take no event
                    }
                    let known = committed.load(Ordering::SeqCst);
                    let mut last = None;
                    for _ in 0..3 {
                        let BusEvent::Event(event) = crate::bus_support::next(&mut subscription).await else {
                            panic!("an event")
                        };
                        match last {
                            // The writer may have committed one more than it has said.
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

/// A reader comes back with the number of its last event, to a process that has not heard of that event yet: another one has
/// delivered it. Nothing is repeated, and nobody says that history has changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_had_more_than_this_process_goes_on_from_there() {
    let database = Database::fresh().unwrap();
    let store = store(&database.url()).await;
    let here = builder(&database.url(), &store).connect().await.unwrap();
    let mut resident = here.subscribe("agent-1");
    resident.ready().await.unwrap();
    for _ in 0..3 {
        store.append(note("agent-1", "nobody rings")).await.unwrap();
    }
    let mut returning = here.subscribe_from("agent-1", 3);
    returning.ready().await.unwrap();
    // What nobody has rung for comes by the next bell or sweep, at the latest.
    let mut between = here.subscribe_from("agent-1", 1);
    between.ready().await.unwrap();
    crate::bus_support::expect_nothing(&mut returning);
    // Here nobody can have been: the store has no such event.
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

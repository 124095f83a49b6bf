//! Server restarts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use doorbell::bus::{BusState, EventBus as _};
use throwaway_postgres::{Server, Stop};

use crate::bus_support::progress::Progress;
use crate::bus_support::writer::Writer;
use crate::bus_support::{blocking, builder, bus, expect, store, until};

/// The time limit for catching up after a restart. An idle machine takes less than a second.
const CAUGHT_UP: Duration = Duration::from_secs(3);

/// Appends without a notification.
const HUNDRED: &str = "SELECT doorbell.append('unnotified', jsonb_build_object('agent_id', 'unnotified', 'type', 'agent_connected')) \
                       FROM generate_series(1, 100)";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p02_an_immediate_restart_loses_nothing() {
    let server = Arc::new(Server::start().unwrap());
    let (here, there) = (bus(&server.url()).await, bus(&server.url()).await);
    let mut all = Progress::of(here.subscribe_all_ready().await.unwrap(), 1);
    let one = here.subscribe("agent-1");
    one.ready().await.unwrap();
    let mut one = Progress::of(one, 1);
    let mut writer = Writer::start(there.clone(), "agent-1", 0);
    let mut slowest = Duration::ZERO;
    for (round, how) in [Stop::Immediate, Stop::Kill, Stop::Fast].into_iter().enumerate() {
        let committed = writer.committed(20).await;
        let stopping = server.clone();
        blocking(move || {
            // The sweep after the reconnect must find these.
            stopping.psql(HUNDRED).unwrap();
            stopping.stop(how).unwrap();
            stopping.start_again().unwrap();
        })
        .await;
        let back = Instant::now();
        all.reaches("unnotified", 100 * (round as u64 + 1)).await;
        all.reaches("agent-1", committed).await;
        one.reaches("agent-1", committed).await;
        slowest = slowest.max(back.elapsed());
    }
    let last = writer.stop().await;
    all.reaches("agent-1", last).await;
    one.reaches("agent-1", last).await;
    println!("all subscriptions caught up at most {slowest:?} after the restart");
    assert!(slowest < CAUGHT_UP, "{slowest:?}");
}

/// A bus is created and subscribed to while the server is down.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p02_subscriptions_made_during_the_outage_become_ready_after_it() {
    let server = Arc::new(Server::start().unwrap());
    let store = store(&server.url()).await;
    let before = builder(&server.url(), &store).connect().await.unwrap();
    server.stop(Stop::Immediate).unwrap();
    until(&before, BusState::Down).await;
    let made = builder(&server.url(), &store).start().unwrap();
    let mut subscriptions = vec![
        before.subscribe("agent-1"),
        before.subscribe_all(),
        made.subscribe("agent-1"),
        made.subscribe_all(),
    ];
    assert!(made.subscribe_all_ready().await.is_err(), "there is no server");
    let starting = server.clone();
    blocking(move || starting.start_again().unwrap()).await;
    for subscription in &subscriptions {
        testkit::within::within("ready", subscription.ready()).await.unwrap();
    }
    for bus in [&before, &made] {
        until(bus, BusState::Live).await;
    }
    for seq in 1..=10 {
        crate::bus_support::writer::append(&before, "agent-1", seq).await;
    }
    for subscription in &mut subscriptions {
        expect(subscription, "agent-1", 1..=10).await;
    }
}

//! A standby replaces the primary, with or without loss.

use std::sync::Arc;

use doorbell::bus::{BusEvent, BusState, BusSubscription, DistributedBus, EventBus as _, Rewound};
use doorbell::store::PostgresStore;
use testkit::within::within;
use throwaway_postgres::{Server, Stop};

use crate::bus_support::progress::Progress;
use crate::bus_support::writer::{Writer, append};
use crate::bus_support::{builder, expect, expect_nothing, next, note, until};
use testkit::proxy::Proxy;

/// A primary and its standby, behind an address that connects to one of them.
struct Pair {
    primary: Server,
    standby: Server,
    proxy: Proxy,
}

impl Pair {
    async fn start() -> Self {
        let primary = Server::start().unwrap();
        let standby = primary.standby().unwrap();
        let proxy = Proxy::start(primary.port()).await.unwrap();
        Self {
            primary,
            standby,
            proxy,
        }
    }

    async fn bus(&self) -> (Arc<PostgresStore>, DistributedBus) {
        let store = crate::bus_support::store(&self.proxy.url("postgres")).await;
        let bus = builder(&self.proxy.url("postgres"), &store).connect().await.unwrap();
        (store, bus)
    }

    /// Kills the primary, promotes the standby, and redirects the address to it.
    fn fail_over(&self) {
        self.primary.stop(Stop::Kill).unwrap();
        self.standby.promote().unwrap();
        self.proxy.redirect(self.standby.port());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promotion_without_loss_goes_unnoticed_by_subscribers() {
    let pair = Pair::start().await;
    let (_, here) = pair.bus().await;
    let (_, there) = pair.bus().await;
    let mut all = Progress::of(here.subscribe_all_ready().await.unwrap(), 1);
    let mut writer = Writer::start(there.clone(), "agent-1", 0);
    writer.committed(50).await;
    let committed = writer.stop().await;
    pair.primary.wait_for_standby(&pair.standby).unwrap();
    pair.fail_over();
    for seq in committed + 1..=committed + 50 {
        append(&there, "agent-1", seq).await;
    }
    all.reaches("agent-1", committed + 50).await;
    for bus in [&here, &there] {
        until(bus, BusState::Live).await;
        assert_eq!(bus.stats().rewinds, 0);
    }
}

/// The next item, which must be a rewind.
async fn rewound(subscription: &mut BusSubscription) -> Rewound {
    match next(subscription).await {
        BusEvent::Rewound(rewound) => rewound,
        other => panic!("expected the rewind, got {other:?}"),
    }
}

/// The standby lacks the last events. Subscriptions that had them get an exact rewind per stream; others notice nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lossy_failover_rewinds_exactly_the_streams_that_lost_events() {
    let pair = Pair::start().await;
    let (_, here) = pair.bus().await;
    let (_, there) = pair.bus().await;
    let mut all = here.subscribe_all_ready().await.unwrap();
    let mut ones = Vec::new();
    for key in ["shorter", "replaced", "untouched"] {
        let one = here.subscribe(key);
        one.ready().await.unwrap();
        ones.push(one);
        for _ in 0..10 {
            there.append_and_publish(note(key, "kept")).await.unwrap();
        }
        expect(ones.last_mut().unwrap(), key, 1..=10).await;
        expect(&mut all, key, 1..=10).await;
    }
    let [shorter, replaced, untouched] = &mut ones[..] else {
        unreachable!()
    };
    pair.primary.wait_for_standby(&pair.standby).unwrap();
    // From here on the standby receives nothing.
    pair.standby
        .psql("ALTER SYSTEM SET primary_conninfo = ''; SELECT pg_reload_conf()")
        .unwrap();
    testkit::within::eventually("the end of replication", || {
        let receivers = "SELECT count(*) FROM pg_stat_replication";
        pair.primary.psql(receivers).unwrap() == "0"
    })
    .await;
    for (key, one) in [("shorter", &mut *shorter), ("replaced", &mut *replaced)] {
        for seq in 11..=13 {
            there.append_and_publish(note(key, "lost")).await.unwrap();
            expect(one, key, seq..=seq).await;
            expect(&mut all, key, seq..=seq).await;
        }
    }
    pair.primary.stop(Stop::Kill).unwrap();
    pair.standby.promote().unwrap();
    // Before the bus reconnects, another writer extends one stream beyond its old length, with other events.
    pair.standby
        .psql(
            "SELECT doorbell.append('replaced', jsonb_build_object('agent_id', 'replaced', 'type', 'agent_retired')) \
             FROM generate_series(1, 5)",
        )
        .unwrap();
    pair.proxy.redirect(pair.standby.port());

    let exact = |key: &str| Rewound {
        stream_key: key.into(),
        delivered: 13,
        resume_after: 10,
        exact: true,
    };
    assert_eq!(rewound(shorter).await, exact("shorter"));
    assert_eq!(rewound(replaced).await, exact("replaced"));
    expect(replaced, "replaced", 11..=15).await;
    let mut rewinds = Vec::new();
    let mut events = Vec::new();
    while rewinds.len() < 2 || events.len() < 5 {
        match within("an item", all.recv()).await.unwrap() {
            BusEvent::Rewound(rewound) => rewinds.push(rewound),
            BusEvent::Event(event) => {
                assert!(rewinds.iter().any(|rewound| *rewound.stream_key == event.agent_id));
                events.push((event.agent_id.clone(), event.seq));
            }
            other => panic!("{other:?}"),
        }
    }
    rewinds.sort_by(|a, b| a.stream_key.cmp(&b.stream_key));
    assert_eq!(rewinds, [exact("replaced"), exact("shorter")]);
    assert_eq!(
        events,
        (11..=15).map(|seq| ("replaced".to_owned(), seq)).collect::<Vec<_>>()
    );
    // New events continue the numbers of the new history.
    until(&there, BusState::Live).await;
    append(&there, "shorter", 11).await;
    append(&there, "untouched", 11).await;
    append(&there, "replaced", 16).await;
    expect(shorter, "shorter", 11..=11).await;
    expect(untouched, "untouched", 11..=11).await;
    expect(replaced, "replaced", 16..=16).await;
    for one in &mut ones {
        expect_nothing(one);
    }
    assert_eq!(here.stats().rewinds, 2);
}

//! Planned switchovers behind one address: connections of the store that stay alive must not stay on the old server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use doorbell::bus::{BusError, BusState, DistributedBus, StreamEvent as _};
use doorbell::store::{PostgresStore, Store as _, StoreError};
use sqlx::postgres::PgPoolOptions;
use testkit::proxy::{Fault, Proxy};
use testkit::within::{eventually, within};
use throwaway_postgres::Server;
use tokio::sync::watch;
use tokio::time::sleep;

use super::several_hosts::both;
use crate::bus_support::progress::Progress;
use crate::bus_support::writer::append;
use crate::bus_support::{LISTENER, blocking, builder, expect, note, until};

/// The only writer of a stream, at a steady pace. Records when an append was last refused.
struct PacedWriter {
    stop: Arc<AtomicBool>,
    refused: watch::Receiver<u64>,
    task: tokio::task::JoinHandle<(u64, Option<Instant>)>,
}

impl PacedWriter {
    fn start(bus: DistributedBus, stream: &'static str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let (refusals, refused) = watch::channel(0);
        let task = tokio::spawn(async move {
            let (mut seq, mut last_refusal) = (0, None);
            while !stopped.load(Ordering::Relaxed) {
                match bus.append_and_publish(note(stream, "hello").with_seq(seq + 1)).await {
                    Ok(_) => seq += 1,
                    // The previous attempt was committed, and only the response was lost.
                    Err(BusError::Store(StoreError::SeqConflict { expected, .. })) if expected == seq + 2 => seq += 1,
                    Err(BusError::Store(error)) if error.is_transient() => {
                        last_refusal = Some(Instant::now());
                        refusals.send_modify(|refusals| *refusals += 1);
                    }
                    Err(error) => panic!("event {}: {error:?}", seq + 1),
                }
                sleep(Duration::from_millis(5)).await;
            }
            (seq, last_refusal)
        });
        Self { stop, refused, task }
    }

    /// Waits for an append that is refused from now on.
    async fn is_refused(&mut self) {
        self.refused.mark_unchanged();
        within("a refused append", self.refused.changed()).await.unwrap();
    }

    async fn stop(self) -> (u64, Option<Instant>) {
        self.stop.store(true, Ordering::Relaxed);
        within("the end of the writer", self.task).await.unwrap()
    }
}

/// Behind one address, which leads to the primary, or with a connection string that lists both servers.
enum Reached {
    BehindOneAddress,
    Listed,
}

async fn switch_over(reached: Reached, store: impl AsyncFn(&str) -> Arc<PostgresStore>) {
    let mut old = Server::start().unwrap();
    let mut new = old.standby().unwrap();
    let proxy = Proxy::start(old.port()).await.unwrap();
    let url = match reached {
        Reached::BehindOneAddress => proxy.url("postgres"),
        Reached::Listed => format!("{}?target_session_attrs=read-write", both(&old, &new)),
    };
    crate::bus_support::store(&url).await; // migrates
    let (here, there) = (store(&url).await, store(&url).await);
    let here = builder(&url, &here).connect().await.unwrap();
    let there = builder(&url, &there).connect().await.unwrap();
    let mut all = Progress::of(here.subscribe_all_ready().await.unwrap(), 1);
    let mut writer = PacedWriter::start(there.clone(), "agent-1");
    let mut writable = Instant::now();
    for _ in 0..2 {
        all.reaches("agent-1", all.at("agent-1") + 20).await;
        (old, new) = blocking(move || {
            old.demote(&new).unwrap();
            old.start_again().unwrap();
            (old, new)
        })
        .await;
        // The address still leads to the old primary, and the pools connect to it.
        writer.is_refused().await;
        (old, new) = blocking(move || {
            new.promote().unwrap();
            (old, new)
        })
        .await;
        proxy.redirect(new.port());
        writable = Instant::now();
        let before = all.at("agent-1");
        all.reaches("agent-1", before + 20).await;
        for bus in [&here, &there] {
            until(bus, BusState::Live).await;
        }
        (old, new) = (new, old);
    }
    // More than a second of appends at the writer's pace: none of them may be refused.
    all.reaches("agent-1", all.at("agent-1") + 250).await;
    let (committed, last_refusal) = writer.stop().await;
    let late = last_refusal
        .expect("a standby refuses appends")
        .saturating_duration_since(writable);
    assert!(
        late < Duration::from_secs(1),
        "an append was refused {late:?} after the promotion"
    );
    all.reaches("agent-1", committed).await;
    let kept = old.psql("SELECT count(*), max(seq) FROM doorbell.events").unwrap();
    assert_eq!(kept, format!("{committed}|{committed}"));
    for bus in [&here, &there] {
        assert_eq!(bus.stats().rewinds, 0, "it is the same history");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p18_the_store_follows_a_switchover_with_the_old_primary_as_a_standby() {
    let store = async |url: &str| Arc::new(PostgresStore::connect(url).await.unwrap());
    switch_over(Reached::BehindOneAddress, store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p18_a_store_over_the_callers_pool_follows_a_switchover() {
    switch_over(Reached::BehindOneAddress, async |url| {
        let pool = PgPoolOptions::new()
            .max_connections(8)
            .acquire_timeout(Duration::from_secs(5));
        let pool = pool.connect(url).await.unwrap();
        Arc::new(PostgresStore::new(pool))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p18_store_and_listener_find_the_primary_among_several_hosts() {
    let store = async |url: &str| Arc::new(PostgresStore::connect(url).await.unwrap());
    switch_over(Reached::Listed, store).await;
}

/// The old primary does not know that it was replaced, and still takes writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p18_nothing_is_appended_on_an_old_primary_once_the_listener_is_on_the_new_one() {
    let old = Server::start().unwrap();
    let new = old.standby().unwrap();
    let proxy = Proxy::start(old.port()).await.unwrap();
    let url = proxy.url("postgres");
    let store = crate::bus_support::store(&url).await;
    let bus = builder(&url, &store).connect().await.unwrap();
    let mut all = bus.subscribe_all_ready().await.unwrap();
    append(&bus, "agent-1", 1).await;
    expect(&mut all, "agent-1", 1..=1).await;
    old.wait_for_standby(&new).unwrap();
    new.promote().unwrap();
    proxy.redirect(new.port());
    let connects = || bus.listen_stats().unwrap().connects;
    let before = connects();
    old.terminate_backends(LISTENER).unwrap();
    eventually("the listener's next connection", || connects() > before).await;
    until(&bus, BusState::Live).await;
    for seq in 2..=20 {
        append(&bus, "agent-1", seq).await;
    }
    expect(&mut all, "agent-1", 2..=20).await;
    let appended = "SELECT count(*) FROM doorbell.events";
    assert_eq!(old.psql(appended).unwrap(), "1");
    assert_eq!(new.psql(appended).unwrap(), "20");
}

/// The listening connection stays on a server that no longer answers, while new connections lead to its successor.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p18_the_store_does_not_wait_for_a_listener_that_stays_behind() {
    let old = Server::start().unwrap();
    let new = old.standby().unwrap();
    let proxy = Proxy::start(old.port()).await.unwrap();
    let url = proxy.url("postgres");
    let store = crate::bus_support::store(&url).await;
    let listener = doorbell::listen::ListenMultiplexer::builder()
        .url(&url)
        .heartbeat(Duration::from_secs(60), Duration::from_secs(60));
    let bus = builder(&url, &store).listen(listener).connect().await.unwrap();
    append(&bus, "agent-1", 1).await;
    old.wait_for_standby(&new).unwrap();
    new.promote().unwrap();
    proxy.redirect(new.port());
    old.psql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE query LIKE '%append_record%' AND pid <> pg_backend_pid()",
    )
    .unwrap();
    let begun = Instant::now();
    append(&bus, "agent-1", 2).await;
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
}

/// The listening connection stays on an old primary, which answers it and does not know that it was replaced.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p18_a_listener_that_stays_on_an_isolated_primary_moves_within_a_sweep() {
    let old = Server::start().unwrap();
    let new = old.standby().unwrap();
    let proxy = Proxy::start(old.port()).await.unwrap();
    let url = proxy.url("postgres");
    let store = crate::bus_support::store(&url).await;
    let bus = builder(&url, &store)
        .sweep_interval(Duration::from_secs(1))
        .connect()
        .await
        .unwrap();
    let mut all = bus.subscribe_all_ready().await.unwrap();
    append(&bus, "agent-1", 1).await;
    expect(&mut all, "agent-1", 1..=1).await;
    old.wait_for_standby(&new).unwrap();
    new.promote().unwrap();
    proxy.redirect(new.port());
    // The pools lose their connections, and the listener does not.
    let others = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND application_name <> '{LISTENER}'"
    );
    old.psql(&others).unwrap();
    let listens_on_new = || new.backends(LISTENER).unwrap().len();
    eventually("the listener's connection to the new primary", || listens_on_new() == 1).await;
    until(&bus, BusState::Live).await;
    assert!(old.backends(LISTENER).unwrap().is_empty());
    let there = crate::bus_support::bus(&new.url()).await;
    for seq in 2..=10 {
        append(&there, "agent-1", seq).await;
        expect(&mut all, "agent-1", seq..=seq).await;
    }
}

/// A server can become a standby without closing its connections, as on Aurora.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p18_a_primary_that_becomes_a_standby_is_noticed_on_a_connection_that_stays() {
    let server = Server::start().unwrap();
    let bus = crate::bus_support::bus(&server.url()).await;
    until(&bus, BusState::Live).await;
    let replace = |body: &str| {
        let sql = format!(
            "CREATE OR REPLACE FUNCTION pg_catalog.pg_is_in_recovery() RETURNS boolean VOLATILE STRICT PARALLEL SAFE {body}"
        );
        server.psql(&sql).unwrap();
    };
    replace("LANGUAGE sql AS 'SELECT true'");
    let health = until(&bus, BusState::Polling).await;
    let reason = health.reason.unwrap().to_string();
    assert!(reason.contains("standby"), "{reason}");
    replace("LANGUAGE internal AS 'pg_is_in_recovery'");
    until(&bus, BusState::Live).await;
    append(&bus, "agent-1", 1).await;
}

/// A standby refuses an append, and has been promoted when the store asks it whether it is one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p18_an_append_that_a_standby_refuses_just_before_its_promotion_is_repeated() {
    let server = Server::start().unwrap();
    crate::bus_support::store(&server.url()).await; // migrates
    let proxy = Proxy::start(server.port()).await.unwrap();
    let store = PostgresStore::builder().transaction_pooler(true);
    let store = store.connect(&proxy.url("postgres")).await.unwrap();
    let append = async |store: &PostgresStore| {
        let appended = within("the append", store.append(note("agent-1", "hello"))).await;
        appended.unwrap();
    };
    append(&store).await;
    proxy.on(
        "BEGIN",
        [Fault::Refuse(
            "25006",
            "cannot execute INSERT in a read-only transaction",
        )],
    );
    append(&store).await;
    assert_eq!(proxy.seen("READ WRITE"), 0, "transactions are not read-only by default");

    server
        .psql("ALTER ROLE postgres SET default_transaction_read_only = on")
        .unwrap();
    let store = PostgresStore::connect(&proxy.url("postgres")).await.unwrap();
    append(&store).await;
    let before = proxy.seen("READ WRITE");
    assert!(before > 0, "they are now");
    let refusal = "cannot set transaction read-write mode during recovery";
    proxy.on("READ WRITE", [Fault::Refuse("0A000", refusal)]);
    append(&store).await;
    assert_eq!(proxy.seen("READ WRITE"), before + 2);
}

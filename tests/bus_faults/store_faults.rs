//! A store some of whose operations fail or panic, while the others work.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use doorbell::bus::{
    BusError, BusEvent, BusHealth, BusState, BusSubscription, DistributedBus, EventBus as _, FleetEvent, StoreOperation,
};
use doorbell::store::{
    Changes, EventId, Heads, Page, PostgresStore, RecentRange, Record, ReplayRange, Store, StoreError, Watermark,
};
use testkit::within::{eventually, within};
use throwaway_postgres::Database;
use tracing::Level;

use crate::bus_support::log_lines::{of_bus, take_state_changes};
use crate::bus_support::{LISTENER, event, expect, next, note, store, until, until_health};
use testkit::log_lines::LogLines;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    Error,
    Panic,
    PanicOnce,
    /// Reads find no events, as on a server that lacks them.
    Lacks,
}

/// A store whose methods fail on request.
struct FaultyStore {
    inner: Arc<PostgresStore>,
    faults: Mutex<HashMap<&'static str, Fault>>,
}

impl FaultyStore {
    async fn new(url: &str) -> Arc<Self> {
        Arc::new(Self {
            inner: store(url).await,
            faults: Mutex::default(),
        })
    }

    fn set(&self, method: &'static str, fault: Fault) {
        self.faults.lock().unwrap().insert(method, fault);
    }

    fn repair(&self) {
        self.faults.lock().unwrap().clear();
    }

    fn has_panicked(&self) -> bool {
        self.faults.lock().unwrap().is_empty()
    }

    fn lacks_events(&self, method: &str) -> bool {
        self.faults.lock().unwrap().get(method) == Some(&Fault::Lacks)
    }

    fn call(&self, method: &str) -> Result<(), StoreError> {
        let fault = {
            let mut faults = self.faults.lock().unwrap();
            let fault = faults.get(method).copied();
            if fault == Some(Fault::PanicOnce) {
                faults.remove(method);
            }
            fault
        };
        match fault {
            None | Some(Fault::Lacks) => Ok(()),
            Some(Fault::Error) => Err(StoreError::other("a planted error")),
            Some(Fault::Panic | Fault::PanicOnce) => panic!("a planted panic"),
        }
    }
}

#[async_trait]
impl Store for FaultyStore {
    async fn append(&self, event: FleetEvent) -> Result<FleetEvent, StoreError> {
        self.call("append")?;
        self.inner.append(event).await
    }

    async fn append_record(&self, event: FleetEvent) -> Result<Record<FleetEvent>, StoreError> {
        self.call("append")?;
        self.inner.append_record(event).await
    }

    async fn replay(&self, stream_key: &str, after: u64, limit: usize) -> Result<Page<FleetEvent>, StoreError> {
        self.call("replay")?;
        if self.lacks_events("replay") {
            return Ok(Page::from_events(Vec::new()));
        }
        self.inner.replay(stream_key, after, limit).await
    }

    async fn replay_many(&self, ranges: &[ReplayRange], limit: usize) -> Result<Vec<Page<FleetEvent>>, StoreError> {
        self.call("replay_many")?;
        if self.lacks_events("replay_many") {
            return Ok(ranges.iter().map(|_| Page::from_events(Vec::new())).collect());
        }
        self.inner.replay_many(ranges, limit).await
    }

    async fn high_water(&self, stream_key: &str) -> Result<u64, StoreError> {
        self.call("heads")?;
        self.inner.high_water(stream_key).await
    }

    async fn heads(&self, stream_keys: &[Arc<str>]) -> Result<Heads, StoreError> {
        self.call("heads")?;
        self.inner.heads(stream_keys).await
    }

    // The default reads events.
    async fn first_recent(&self, ranges: &[RecentRange]) -> Result<Vec<Option<u64>>, StoreError> {
        self.call("first_recent")?;
        self.inner.first_recent(ranges).await
    }

    async fn changed_since(&self, since: Option<&Watermark>, limit: usize) -> Result<Option<Changes>, StoreError> {
        self.call("changed_since")?;
        self.inner.changed_since(since, limit).await
    }

    async fn event_ids(&self, positions: &[(Arc<str>, u64)]) -> Result<Vec<Option<EventId>>, StoreError> {
        self.call("event_ids")?;
        self.inner.event_ids(positions).await
    }
}

/// A bus over a faulty store, which sweeps every 20 ms, and another process's bus. With the default heartbeat, so that a slow machine is no
/// fault.
struct Rig {
    database: Database,
    faulty: Arc<FaultyStore>,
    bus: DistributedBus,
    there: DistributedBus,
    all: BusSubscription,
}

impl Rig {
    async fn start() -> Self {
        let database = Database::fresh().unwrap();
        let faulty = FaultyStore::new(&database.url()).await;
        let bus = start(&database, &faulty).await;
        let there = bus_elsewhere(&database).await;
        let all = within("ready", bus.subscribe_all_ready()).await.unwrap();
        Self {
            database,
            faulty,
            bus,
            there,
            all,
        }
    }

    /// Plants a fault, and gives every operation something to do: an event of the other process, a new subscription that reads the
    /// history of `stream`, and an append. Returns that subscription's first item. Two events are then due to the subscription to all.
    async fn break_and_use(
        &mut self,
        stream: &str,
        method: &'static str,
        fault: Fault,
    ) -> tokio::task::JoinHandle<Option<BusEvent>> {
        self.append_elsewhere(stream).await;
        self.receive(1).await;
        self.faulty.set(method, fault);
        self.append_elsewhere(&format!("{stream} elsewhere")).await;
        let mut history = self.bus.subscribe_from(stream, 0);
        let history = tokio::spawn(async move { history.recv().await });
        self.append(&format!("{stream} here")).await;
        history
    }

    async fn append_elsewhere(&self, stream: &str) {
        let appended = self.there.append_and_publish(note(stream, "elsewhere"));
        within("an append elsewhere", appended).await.unwrap();
    }

    async fn append(&self, stream: &str) {
        let appended = self.bus.append_and_publish(note(stream, "here"));
        within("an append", appended).await.unwrap();
    }

    /// Receives this many events.
    async fn receive(&mut self, count: usize) {
        for _ in 0..count {
            event(&mut self.all).await;
        }
    }
}

async fn start(database: &Database, faulty: &Arc<FaultyStore>) -> DistributedBus {
    DistributedBus::builder(faulty.clone())
        .url(&database.url())
        .sweep_interval(Duration::from_millis(20))
        .connect()
        .await
        .unwrap()
}

async fn bus_elsewhere(database: &Database) -> DistributedBus {
    let builder = DistributedBus::builder(store(&database.url()).await);
    builder.url(&database.url()).connect().await.unwrap()
}

/// Which operations fail while a method of the store does.
const OPERATIONS: [(&str, &[StoreOperation]); 4] = [
    ("replay_many", &[StoreOperation::Read]),
    ("replay", &[StoreOperation::History]),
    ("heads", &[StoreOperation::Start, StoreOperation::Sweep]),
    ("changed_since", &[StoreOperation::Sweep]),
];

fn is_down(health: &BusHealth, operations: &[StoreOperation]) -> bool {
    health.state == BusState::Down
        && health.failing.len() == operations.len()
        && operations.iter().all(|operation| health.failing.contains(operation))
}

// On one thread, so that the subscriber gets the lines of all tasks.
#[tokio::test]
async fn p40_the_success_of_one_operation_hides_no_failure_of_another() {
    let lines = LogLines::default();
    let _subscriber = tracing::subscriber::set_default(lines.subscriber(of_bus));
    let mut rig = Rig::start().await;
    for (method, operations) in OPERATIONS {
        until(&rig.bus, BusState::Live).await;
        until(&rig.there, BusState::Live).await; // logs, too
        take_state_changes(&lines);
        let history = rig.break_and_use(method, method, Fault::Error).await;
        until_health(&rig.bus, method, |health| is_down(health, operations)).await;
        let before = rig.bus.stats();
        for round in 0..5 {
            rig.append(&format!("{method} {round}")).await;
            let failed = rig.bus.stats().failed_reads;
            // Each operation that works is used.
            eventually("failures", || rig.bus.stats().failed_reads > failed).await;
            drop(rig.bus.subscribe(&format!("another {method} {round}")));
            let health = rig.bus.health();
            assert!(is_down(&health, operations), "{method}: {health:?}");
        }
        assert!(rig.bus.stats().failed_reads >= before.failed_reads + 5);
        rig.faulty.repair();
        let health = until(&rig.bus, BusState::Live).await;
        assert_eq!(health.failing, []);
        within("the history", history).await.unwrap().unwrap();
        rig.receive(7).await;
        assert_eq!(take_state_changes(&lines), [Level::WARN, Level::INFO], "{method}");
    }
}

/// A failure ends when nobody needs the operation any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p40_an_operation_that_is_not_due_any_more_does_not_fail() {
    let mut rig = Rig::start().await;
    rig.append_elsewhere("agent-1").await;
    rig.receive(1).await;
    rig.faulty.set("replay", Fault::Error);
    let mut history = rig.bus.subscribe_from("agent-1", 0);
    let reading = tokio::spawn(async move { history.recv().await });
    until_health(&rig.bus, "failing", |health| {
        is_down(health, &[StoreOperation::History])
    })
    .await;
    reading.abort();
    until(&rig.bus, BusState::Live).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p41_a_store_that_panics_is_a_store_that_fails() {
    let mut rig = Rig::start().await;
    for (method, operations) in OPERATIONS {
        for fault in [Fault::PanicOnce, Fault::Panic] {
            until(&rig.bus, BusState::Live).await;
            let stream = format!("{method} {fault:?}");
            let failed = rig.bus.stats().failed_reads;
            let history = rig.break_and_use(&stream, method, fault).await;
            if fault == Fault::Panic {
                let health = until_health(&rig.bus, method, |health| is_down(health, operations)).await;
                let reason = health.reason.unwrap();
                assert!(
                    matches!(&reason, BusError::Store(StoreError::Panicked { message }) if message == "a planted panic"),
                    "{reason}"
                );
            } else {
                eventually(method, || rig.bus.stats().failed_reads > failed).await;
            }
            rig.faulty.repair();
            within("the history", history).await.unwrap().unwrap();
            rig.receive(2).await;
            until(&rig.bus, BusState::Live).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p41_a_panic_at_the_start_delays_it() {
    for method in ["changed_since", "heads"] {
        let database = Database::fresh().unwrap();
        let faulty = FaultyStore::new(&database.url()).await;
        faulty.set(method, Fault::PanicOnce);
        let bus = start(&database, &faulty).await;
        let mut all = within("ready", bus.subscribe_all_ready()).await.unwrap();
        let mut one = bus.subscribe("agent-1");
        within("ready", one.ready()).await.unwrap();
        eventually("the panic", || faulty.has_panicked()).await;
        bus_elsewhere(&database)
            .await
            .append_and_publish(note("agent-1", "hello"))
            .await
            .unwrap();
        expect(&mut all, "agent-1", 1..=1).await;
        expect(&mut one, "agent-1", 1..=1).await;
        until(&bus, BusState::Live).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p41_a_panic_in_the_check_of_the_history_delays_the_events_after_a_reconnect() {
    let mut rig = Rig::start().await;
    rig.append("agent-1").await;
    event(&mut rig.all).await;
    rig.faulty.set("heads", Fault::Panic);
    let end = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{LISTENER}' AND datname = current_database()"
    );
    rig.database.psql(&end).unwrap();
    until_health(&rig.bus, "failing", |health| is_down(health, &[StoreOperation::Sweep])).await;
    rig.append_elsewhere("agent-1").await;
    rig.faulty.repair();
    expect(&mut rig.all, "agent-1", 2..=2).await;
    until(&rig.bus, BusState::Live).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p41_an_append_that_panics_fails_with_a_typed_error() {
    let mut rig = Rig::start().await;
    rig.faulty.set("append", Fault::PanicOnce);
    let error = rig.bus.append_and_publish(note("agent-1", "hello")).await.unwrap_err();
    assert!(matches!(error, BusError::Store(StoreError::Panicked { .. })), "{error}");
    rig.append("agent-1").await;
    expect(&mut rig.all, "agent-1", 1..=1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p44_reads_of_history_that_lack_events_are_repeated_with_a_back_off() {
    let mut rig = Rig::start().await;
    for _ in 0..3 {
        rig.append_elsewhere("agent-1").await;
    }
    rig.receive(3).await;
    rig.faulty.set("replay", Fault::Lacks);
    let (start, before) = (Instant::now(), rig.bus.stats().replay_reads);
    let mut history = rig.bus.subscribe_from("agent-1", 0);
    let history = tokio::spawn(async move { expect(&mut history, "agent-1", 1..=3).await });
    eventually("reads", || rig.bus.stats().replay_reads >= before + 6).await;
    assert!(start.elapsed() >= Duration::from_millis(20), "{:?}", start.elapsed());
    assert!(!history.is_finished());
    rig.faulty.repair();
    within("the history", history).await.unwrap();
    assert_eq!(rig.bus.stats().rewinds, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p44_events_that_a_read_lacks_are_delivered_by_a_later_sweep() {
    let mut rig = Rig::start().await;
    rig.append_elsewhere("agent-1").await;
    rig.receive(1).await;
    rig.faulty.set("replay_many", Fault::Lacks);
    let before = rig.bus.stats();
    rig.append_elsewhere("agent-1").await;
    eventually("a read", || rig.bus.stats().reads > before.reads).await;
    // The sweep after the append lists the stream, those after it do not.
    let sweeps = rig.bus.stats().sweeps;
    eventually("sweeps", || rig.bus.stats().sweeps >= sweeps + 3).await;
    rig.faulty.repair();
    expect(&mut rig.all, "agent-1", 2..=2).await;
}

/// Events that a read of history lacks are lost. The stream has only subscriptions to all, one of which is behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p44_events_that_a_read_lacks_because_they_are_lost_are_a_rewind() {
    let database = Database::fresh().unwrap();
    let faulty = FaultyStore::new(&database.url()).await;
    let builder = DistributedBus::builder(faulty.clone()).url(&database.url());
    let sweeps_often = builder.sweep_interval(Duration::from_millis(20));
    let bus = sweeps_often.all_capacity(4).connect().await.unwrap();
    let [mut fast, mut slow] = [bus.subscribe_all(), bus.subscribe_all()];
    within("ready", async { tokio::try_join!(fast.ready(), slow.ready()) })
        .await
        .unwrap();
    for n in 1..=20 {
        bus.append_and_publish(note("agent-1", "hello")).await.unwrap();
        expect(&mut fast, "agent-1", n..=n).await;
    }
    faulty.set("replay", Fault::Lacks);
    let slow = tokio::spawn(async move {
        expect(&mut slow, "agent-1", 1..=6).await;
    });
    let before = bus.stats().replay_reads;
    eventually("reads", || bus.stats().replay_reads >= before + 2).await;
    database.psql("DELETE FROM doorbell.events WHERE seq > 5").unwrap();
    let BusEvent::Rewound(rewound) = next(&mut fast).await else {
        panic!("not rewound")
    };
    assert_eq!((rewound.delivered, rewound.resume_after), (20, 5));
    faulty.repair();
    bus.append_and_publish(note("agent-1", "hello")).await.unwrap();
    expect(&mut fast, "agent-1", 6..=6).await;
    within("the slow subscription", slow).await.unwrap();
}

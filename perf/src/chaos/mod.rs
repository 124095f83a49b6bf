//! Everything goes wrong at random for a while. At the end every subscriber has every committed event, once, in order, or was told
//! exactly what it was too slow for.
//!
//! This process audits and disturbs; publishers and subscribers are its children. Nobody keeps what it gets, so that
//! a run can last for hours: see [`account`].

pub mod account;
mod audit;
mod faults;
mod publisher;
mod subscriber;
mod subscriptions;

use std::fmt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use doorbell::bus::{DistributedBus, DistributedBusBuilder, FleetEvent};
use doorbell::listen::ListenMultiplexer;
use doorbell::store::PostgresStore;
use throwaway_postgres::Server;
use tokio::sync::oneshot;

use self::audit::Audit;
use self::faults::Faults;
use self::subscriber::Report;
use crate::child::{Child, LIMIT, runtime};
use testkit::random::Rng;

/// What a run fails with.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// All publishers write to all of them.
const STREAMS: u64 = 12;

/// The `application_name` of every listener, of the publishers' other connections, and of the subscribers'.
const LISTENER: &str = "chaos listener";
const PUBLISHER: &str = "chaos publisher";
const SUBSCRIBER: &str = "chaos subscriber";

/// How often the processes are looked at.
const LOOK: Duration = Duration::from_millis(200);

fn stream(n: u64) -> String {
    format!("agent:{n}")
}

/// A run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub duration: Duration,
    pub seed: u64,
    pub publishers: usize,
    pub subscribers: usize,
    /// The longest pause of a publisher between two appends.
    pub pause: Duration,
    /// How many events of each stream retention leaves.
    pub keep: u64,
    /// The longest time between two faults.
    pub between_faults: Duration,
}

impl Plan {
    /// As dense as a machine of two cores can bear.
    pub fn dense(duration: Duration, seed: u64) -> Self {
        Self {
            duration,
            seed,
            publishers: 4,
            subscribers: 3,
            pause: Duration::from_millis(12),
            keep: 1_000,
            between_faults: Duration::from_millis(600),
        }
    }
}

/// How a run is going.
pub struct Glance<'a> {
    pub elapsed: Duration,
    /// Events that the audit has found in the store so far.
    pub committed: u64,
    pub faults: u64,
    pub publishers: &'a [Child],
    pub subscribers: &'a [Child],
}

/// How a run went that found nothing wrong.
#[derive(Debug)]
pub struct Outcome {
    pub committed: u64,
    /// Deliveries that the audit agrees with.
    pub compared: u64,
    pub trimmed: u64,
    pub faults: String,
    /// A line of each subscriber.
    pub subscribers: Vec<String>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for subscriber in &self.subscribers {
            writeln!(f, "subscriber: {subscriber}")?;
        }
        writeln!(
            f,
            "{} events committed, {} of them removed",
            self.committed, self.trimmed
        )?;
        writeln!(f, "{} deliveries compared with the store", self.compared)?;
        write!(f, "faults: {}", self.faults)
    }
}

/// Runs on a database that nobody else uses; on a server of ours, if it is to be disturbed. `look` is called every now and then.
pub fn run(
    plan: &Plan,
    url: &str,
    disturbed: Option<&Server>,
    mut look: impl FnMut(&Glance<'_>),
) -> Result<Outcome, Failure> {
    let runtime = runtime();
    let mut rng = Rng::with_seed(plan.seed);
    let audit = runtime.block_on(Audit::begin(url, plan.keep))?;
    let committed = audit.committed();
    let mut subscribers: Vec<Child> = (0..plan.subscribers)
        .map(|_| Child::start("subscriber", &[&named(url, SUBSCRIBER), &rng.u64(..).to_string()]))
        .collect();
    for subscriber in &subscribers {
        expect(&subscriber.line_within(LIMIT)?, "ready")?;
    }
    let (stop_auditing, stopped) = oneshot::channel();
    let auditing = runtime.spawn(audit.follow(stopped));
    let publisher = |rng: &mut Rng| {
        let pause = plan.pause.as_millis().max(1).to_string();
        let seed = rng.u64(..).to_string();
        let ends = if disturbed.is_some() { "mortal" } else { "immortal" };
        Child::start("publisher", &[&named(url, PUBLISHER), &seed, &pause, ends])
    };
    let mut publishers: Vec<Child> = (0..plan.publishers).map(|_| publisher(&mut rng)).collect();
    let mut faults = Faults::new(plan.between_faults);
    let begun = Instant::now();
    while begun.elapsed() < plan.duration {
        match disturbed {
            None => std::thread::sleep(LOOK),
            Some(server) => faults.wait_and_do_one(LOOK, server, &mut publishers, &mut rng)?,
        }
        for child in &mut publishers {
            if let Some(status) = child.status() {
                if disturbed.is_none() || has_failed(status) {
                    return Err(format!("a publisher has failed: {status}").into());
                }
                *child = publisher(&mut rng);
            }
        }
        if !subscribers.iter_mut().all(Child::runs) {
            return Err("a subscriber has failed".into());
        }
        look(&Glance {
            elapsed: begun.elapsed(),
            committed: committed.get(),
            faults: faults.count(),
            publishers: &publishers,
            subscribers: &subscribers,
        });
    }
    end_all(&mut publishers)?;
    let _ = stop_auditing.send(());
    let mut audit = runtime.block_on(auditing)??;
    runtime.block_on(async {
        // One that was killed may have had a commit under way.
        audit.nobody_is_connected(&[PUBLISHER]).await?;
        audit.finish().await
    })?;
    let mut outcome = Outcome {
        committed: committed.get(),
        compared: 0,
        trimmed: audit.trimmed(),
        faults: faults.to_string(),
        subscribers: Vec::new(),
    };
    for subscriber in &mut subscribers {
        subscriber.finish();
    }
    for subscriber in &subscribers {
        // It waits for so long for its subscriptions, and for its bus.
        let report: Report = serde_json::from_str(&subscriber.line_within(3 * LIMIT)?)?;
        for (what, account) in &report.accounts {
            outcome.compared += audit.compare(account).map_err(|wrong| format!("{what}: {wrong}"))?;
        }
        outcome.subscribers.push(report.summary);
    }
    end_all(&mut subscribers)?;
    runtime.block_on(audit.nobody_is_connected(&[LISTENER, PUBLISHER, SUBSCRIBER]))?;
    Ok(outcome)
}

/// Does what a child is to do, if this process is one.
pub fn run_child(arguments: &[&str]) -> bool {
    let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("{text:?} is not a number"));
    match arguments[..] {
        ["child", "publisher", url, seed, pause, ends] => {
            publisher::run(url, number(seed), number(pause), ends == "mortal");
        }
        ["child", "subscriber", url, seed] => subscriber::run(url, number(seed)),
        _ => return false,
    }
    true
}

fn end_all(children: &mut [Child]) -> Result<(), Failure> {
    for child in &mut *children {
        child.finish();
    }
    for child in children {
        let status = child.ended();
        if has_failed(status) {
            return Err(format!("a process has failed: {status}").into());
        }
    }
    Ok(())
}

/// Ended neither by itself nor by being killed.
fn has_failed(status: ExitStatus) -> bool {
    status.code().is_some_and(|code| code != 0)
}

fn expect(line: &str, word: &str) -> Result<(), Failure> {
    if line == word {
        return Ok(());
    }
    Err(format!("{line:?} instead of {word:?}").into())
}

/// The same URL for connections that go by this name.
fn named(url: &str, application_name: &str) -> String {
    let joint = if url.contains('?') { '&' } else { '?' };
    format!("{url}{joint}application_name={}", application_name.replace(' ', "%20"))
}

/// A bus that notices what is wrong soon.
fn builder(url: &str, store: &Arc<PostgresStore>) -> DistributedBusBuilder<FleetEvent> {
    let listener = ListenMultiplexer::builder()
        .url(url)
        .application_name(LISTENER)
        .heartbeat(Duration::from_millis(300), Duration::from_millis(700))
        .connect_timeout(Duration::from_secs(2));
    DistributedBus::builder(store.clone())
        .url(url)
        .listen(listener)
        .sweep_interval(Duration::from_secs(1))
        .stream_capacity(16) // so that subscribers fall behind
        .all_capacity(32)
        .page(16)
}

/// The server may be away at any moment.
async fn connect(url: &str) -> Arc<PostgresStore> {
    loop {
        let builder = PostgresStore::builder().response_timeout(Duration::from_secs(3));
        match builder.connect(url).await {
            Ok(store) => return Arc::new(store),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

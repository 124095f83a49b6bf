//! Random faults for a chosen time. At the end, every subscriber must have received every committed event once and in order,
//! apart from those that were announced to it as missing.
//!
//! This process audits the store and injects the faults; publishers and subscribers are its child processes. No process keeps the
//! events, so a run can last for hours: see [`account`].

pub mod account;
mod audit;
mod connections;
mod faults;
mod hostile;
mod publisher;
mod refusals;
mod servers;
mod subscriber;
mod subscriptions;

use std::fmt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use doorbell::bus::{DistributedBus, DistributedBusBuilder, FleetEvent};
use doorbell::listen::ListenMultiplexer;
use doorbell::store::PostgresStore;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use self::audit::Audit;
use self::connections::wait_until_disconnected;
use self::faults::Faults;
pub use self::servers::Servers;
use self::subscriber::Report;
use crate::child::{Child, LIMIT, runtime};
use testkit::random::Rng;

/// The error of a run.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The number of streams. Every publisher appends to all of them.
const STREAMS: u64 = 12;

/// The `application_name` of all listening connections, and of the publishers' and the subscribers' other connections.
const LISTENER: &str = "chaos listener";
const PUBLISHER: &str = "chaos publisher";
const SUBSCRIBER: &str = "chaos subscriber";

/// The first word of the line that a publisher prints when an append is refused. The time follows, in nanoseconds since 1970.
const REFUSED: &str = "refused";

/// How long the stores wait for a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);

/// How often to check the processes.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

fn stream(n: u64) -> String {
    format!("agent:{n}")
}

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub duration: Duration,
    pub seed: u64,
    pub publishers: usize,
    pub subscribers: usize,
    /// The longest pause of a publisher between two appends.
    pub pause: Duration,
    /// How many events of each stream retention keeps, besides those of the last 30 s.
    pub keep: u64,
    /// The longest time between two faults.
    pub between_faults: Duration,
}

impl Plan {
    /// As much load and as many faults as a machine with two cores can handle.
    pub fn dense(duration: Duration, seed: u64) -> Self {
        Self {
            duration,
            seed,
            publishers: 4,
            subscribers: 3,
            pause: Duration::from_millis(12),
            // A fraction of what a run of a minute appends to a stream.
            keep: 100,
            between_faults: Duration::from_millis(600),
        }
    }
}

/// The state of a run.
pub struct Progress<'a> {
    pub elapsed: Duration,
    /// Events that the audit has found in the store so far.
    pub committed: u64,
    pub faults: u64,
    pub publishers: &'a [Child],
    pub subscribers: &'a [Child],
}

/// The result of a run without failures.
#[derive(Debug)]
pub struct Outcome {
    pub committed: u64,
    /// Deliveries that were compared with the store.
    pub compared: u64,
    pub trimmed: u64,
    pub faults: String,
    /// One line per subscriber process.
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

/// Runs on the database at `url`, which nothing else may use. If `servers` are given, `url` is their address, and the run injects
/// faults. Calls `report` several times a second.
pub fn run(
    plan: &Plan,
    url: &str,
    servers: Option<&mut Servers>,
    report: impl FnMut(&Progress<'_>),
) -> Result<Outcome, Failure> {
    let runtime = runtime();
    let faults = servers.map(|servers| Faults::new(servers, plan.between_faults, runtime.handle().clone()));
    let mut faults = faults.transpose()?;
    let outcome = run_with(plan, url, &mut faults, &runtime, report);
    if let (Err(_), Some(faults)) = (&outcome, &faults) {
        eprintln!("{}", faults.history());
    }
    outcome
}

fn run_with(
    plan: &Plan,
    url: &str,
    faults: &mut Option<Faults<'_>>,
    runtime: &Runtime,
    mut report: impl FnMut(&Progress<'_>),
) -> Result<Outcome, Failure> {
    let mut rng = Rng::with_seed(plan.seed);
    let audit = runtime.block_on(Audit::start(url, plan.keep))?;
    let committed = audit.committed();
    let mut subscribers: Vec<Child> = (0..plan.subscribers)
        .map(|_| Child::start("subscriber", &[&named(url, SUBSCRIBER), &rng.u64(..).to_string()]))
        .collect();
    for subscriber in &subscribers {
        expect(&subscriber.line_within(LIMIT)?, "ready")?;
    }
    let (stop_auditing, stopped) = oneshot::channel();
    let auditing = runtime.spawn(audit.follow(stopped));
    let crashes = if faults.is_some() { "crashes" } else { "stays" };
    let publisher = |rng: &mut Rng| {
        let pause = plan.pause.as_millis().max(1).to_string();
        let seed = rng.u64(..).to_string();
        Child::start("publisher", &[&named(url, PUBLISHER), &seed, &pause, crashes])
    };
    let mut publishers: Vec<Child> = (0..plan.publishers).map(|_| publisher(&mut rng)).collect();
    let begun = Instant::now();
    while begun.elapsed() < plan.duration {
        match faults {
            None => std::thread::sleep(CHECK_INTERVAL),
            Some(faults) => faults.inject_when_due(CHECK_INTERVAL, &mut publishers, &mut rng)?,
        }
        for child in &mut publishers {
            record_refusals(child, faults)?;
            if let Some(status) = child.exit_status() {
                if faults.is_none() || has_failed(status) {
                    return Err(format!("a publisher failed: {status}").into());
                }
                *child = publisher(&mut rng);
            }
        }
        if !subscribers.iter_mut().all(Child::is_running) {
            return Err("a subscriber failed".into());
        }
        report(&Progress {
            elapsed: begun.elapsed(),
            committed: committed.get(),
            faults: faults.as_ref().map_or(0, Faults::count),
            publishers: &publishers,
            subscribers: &subscribers,
        });
    }
    if let Some(faults) = faults {
        faults.stop();
    }
    stop_all(&mut publishers)?;
    for child in &publishers {
        record_refusals(child, faults)?;
    }
    let _ = stop_auditing.send(());
    let mut audit = runtime.block_on(auditing)??;
    let direct_urls = match faults {
        None => vec![url.to_owned()],
        Some(faults) => faults.servers().direct_urls().to_vec(),
    };
    runtime.block_on(async {
        // A publisher that was killed may have had a commit under way.
        wait_until_disconnected(&direct_urls, &[PUBLISHER]).await?;
        audit.finish().await
    })?;
    let mut outcome = Outcome {
        committed: committed.get(),
        compared: 0,
        trimmed: audit.trimmed(),
        faults: faults.as_ref().map_or_else(|| "none".to_owned(), Faults::to_string),
        subscribers: Vec::new(),
    };
    for subscriber in &mut subscribers {
        subscriber.close_stdin();
    }
    for subscriber in &subscribers {
        // It waits up to `LIMIT` each for its bus, for its subscriptions and for its bus again.
        let report: Report = serde_json::from_str(&subscriber.line_within(4 * LIMIT)?)?;
        for (name, account) in &report.accounts {
            outcome.compared += audit.compare(account).map_err(|error| format!("{name}: {error}"))?;
        }
        outcome.subscribers.push(report.summary);
    }
    stop_all(&mut subscribers)?;
    runtime.block_on(wait_until_disconnected(
        &direct_urls,
        &[LISTENER, PUBLISHER, SUBSCRIBER],
    ))?;
    if let Some(faults) = faults {
        faults.refusals().check().map_err(|late| format!("{late}\n{outcome}"))?;
    }
    Ok(outcome)
}

/// Records the appends that this publisher has been refused.
fn record_refusals(publisher: &Child, faults: &mut Option<Faults<'_>>) -> Result<(), Failure> {
    for line in publisher.lines_so_far() {
        let mut words = line.split(' ');
        expect(words.next().unwrap_or_default(), REFUSED)?;
        let time = words.next().unwrap_or_default().parse()?;
        if let Some(faults) = faults {
            faults.refusals().refused_at(time);
        }
    }
    Ok(())
}

/// Runs as a child process, if the arguments say so. Returns whether they did.
pub fn run_child(arguments: &[&str]) -> bool {
    let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("{text:?} is not a number"));
    match arguments[..] {
        ["child", "publisher", url, seed, pause, crashes] => {
            publisher::run(url, number(seed), number(pause), crashes == "crashes");
        }
        ["child", "subscriber", url, seed] => subscriber::run(url, number(seed)),
        _ => return false,
    }
    true
}

fn stop_all(children: &mut [Child]) -> Result<(), Failure> {
    for child in &mut *children {
        child.close_stdin();
    }
    for child in children {
        let status = child.wait();
        if has_failed(status) {
            return Err(format!("a process failed: {status}").into());
        }
    }
    Ok(())
}

/// Exited with an error. A process that a signal killed has no exit code.
fn has_failed(status: ExitStatus) -> bool {
    status.code().is_some_and(|code| code != 0)
}

fn expect(line: &str, word: &str) -> Result<(), Failure> {
    if line == word {
        return Ok(());
    }
    Err(format!("{line:?} instead of {word:?}").into())
}

/// The URL with this `application_name`.
fn named(url: &str, application_name: &str) -> String {
    let separator = if url.contains('?') { '&' } else { '?' };
    format!(
        "{url}{separator}application_name={}",
        application_name.replace(' ', "%20")
    )
}

/// A bus with short time-outs and intervals, so that it detects faults quickly.
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

/// Connects, and retries while the server is unavailable.
async fn connect(url: &str) -> Arc<PostgresStore> {
    loop {
        let builder = PostgresStore::builder().response_timeout(RESPONSE_TIMEOUT);
        match builder.connect(url).await {
            Ok(store) => return Arc::new(store),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

//! One round: a process that publishes on schedule, a process that subscribes, and the histograms.

use std::fmt;

use crate::server::MeasuredServer;
use crate::units::count;
use doorbell_perf::bus::candidates::{Candidate, Failure};
use doorbell_perf::bus::delivery_tracker::DeliveryErrors;
use doorbell_perf::bus::worker::publish::Load;
use doorbell_perf::bus::worker::{Job, Worker, pace, subscribe};
use doorbell_perf::latencies::Latencies;

/// Connections that the subscribing process has besides its listener. The naive design gets all that are free.
const CONNECTIONS: usize = 4;
/// More streams than this share writers.
const MOST_WRITERS: usize = 8;

/// One setting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) subscribers: usize,
    pub(crate) streams: usize,
    /// Events per second.
    pub(crate) rate: u64,
    pub(crate) events: usize,
}

impl Setting {
    /// As many events as are due in `seconds`, at least two for each stream.
    pub(crate) fn new(subscribers: usize, streams: usize, rate: u64, seconds: f64) -> Result<Self, Failure> {
        if !(seconds > 0.0 && seconds <= 1e6) {
            return Err("--seconds: must be more than 0, and at most a million".into());
        }
        let each = (rate as f64 * seconds / streams as f64).ceil().max(2.0) as usize;
        Ok(Self {
            subscribers,
            streams,
            rate,
            events: each * streams,
        })
    }

    fn warm_up(&self) -> usize {
        self.events / 10
    }

    fn writers(&self) -> usize {
        self.streams.min(MOST_WRITERS)
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [subscribers, streams] = [self.subscribers, self.streams].map(|number| count(number as u64));
        let plural = if self.streams == 1 { "" } else { "s" };
        write!(
            formatter,
            "{subscribers} on {streams} stream{plural}, {}/s",
            count(self.rate)
        )
    }
}

/// The result of one or several rounds.
#[derive(Default)]
pub(crate) struct Measurement {
    /// From due until each subscriber had it.
    pub(crate) each: Latencies,
    /// From due until the last subscriber had it.
    pub(crate) last: Latencies,
    /// From due until the append began.
    pub(crate) lateness: Latencies,
    pub(crate) events: usize,
    pub(crate) reads: u64,
    /// The highest number that the subscribing process had.
    pub(crate) connections: usize,
    pub(crate) errors: DeliveryErrors,
    /// Seconds of the subscribing process.
    pub(crate) cpu: f64,
}

impl Measurement {
    pub(crate) fn add(&mut self, other: Self) {
        self.each += &other.each;
        self.last += &other.last;
        self.lateness += &other.lateness;
        self.events += other.events;
        self.reads += other.reads;
        self.connections = self.connections.max(other.connections);
        self.errors.lost += other.errors.lost;
        self.errors.repeated += other.errors.repeated;
        self.errors.reordered += other.errors.reordered;
        self.cpu += other.cpu;
    }

    pub(crate) fn reads_per_event(&self) -> f64 {
        self.reads as f64 / self.events.max(1) as f64
    }
}

/// How many connections the candidate may have besides its listener; `None` if the server has too few.
pub(crate) fn connections(
    server: &MeasuredServer,
    setting: Setting,
    candidate: Candidate,
) -> Result<Option<u32>, Failure> {
    let free = server.free_connections(&server.database()?)?;
    // The publisher's, with one for notifications and one that listens; and one that observes.
    let others = setting.writers() + 2 + 1;
    let listeners = if candidate == Candidate::Naive {
        setting.subscribers
    } else {
        1
    };
    let Some(left) = free.checked_sub(others + listeners).filter(|&left| left > 0) else {
        return Ok(None);
    };
    let pool = if candidate == Candidate::Naive {
        left
    } else {
        left.min(CONNECTIONS)
    };
    Ok(Some(u32::try_from(pool)?))
}

/// Measures one round, in a new database.
pub(crate) fn round(server: &MeasuredServer, setting: Setting, candidate: Candidate) -> Result<Measurement, Failure> {
    let connections = connections(server, setting, candidate)?.ok_or("the server has too few connections")?;
    let database = server.database()?;
    let mut subscriber = Worker::start(&Job::Subscribe(subscribe::Job {
        candidate,
        url: database.url(),
        port: server.port()?,
        connections,
        subscribers: setting.subscribers,
        load: Load {
            streams: setting.streams,
            first: 0,
            events: setting.events,
            rate: setting.rate as f64,
            burst: 1,
        },
        warm_up: setting.warm_up(),
        publishes: false,
        times_each: true,
    }))?;
    let publisher = Worker::start(&Job::Pace(pace::Job {
        candidate,
        url: database.url(),
        streams: setting.streams,
        events: setting.events,
        warm_up: setting.warm_up(),
        rate: setting.rate as f64,
        writers: setting.writers(),
    }))?;
    subscriber.go()?;
    let lateness: Latencies = publisher.run()?;
    let outcome: subscribe::Outcome = subscriber.outcome()?;
    Ok(Measurement {
        each: outcome.each,
        last: outcome.last,
        lateness,
        events: setting.events,
        reads: outcome.reads,
        connections: outcome.connections,
        errors: outcome.errors,
        cpu: outcome.cpu,
    })
}

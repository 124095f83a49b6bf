//! One event to many subscribers: the time until the last one has it, and its cost.

use std::collections::HashMap;

use throwaway_postgres::Server;

use crate::options::Options;
use crate::report::{Report, median};
use crate::servers;
use doorbell_perf::bus::candidates::{Candidate, Failure};
use doorbell_perf::bus::worker::publish::Load;
use doorbell_perf::bus::worker::{Job, Worker, publish, subscribe};
use doorbell_perf::table::{Align, Table};

/// Connections that a process of doorbell or pg-bus has besides its listener.
const CONNECTIONS: u32 = 4;
/// Connections left for subscribers and pools under the server's default limit of 100: three are reserved for superusers, four
/// are the publisher's, and one observes.
const ALL_CONNECTIONS: u32 = 92;

/// A load and its subscribers.
#[derive(Clone, Copy, Debug)]
struct Scenario {
    name: &'static str,
    subscribers: usize,
    streams: usize,
    events: usize,
    rate: f64,
    burst: usize,
}

const SCENARIOS: &[Scenario] = &[
    scenario("80 on one stream", 80, 1, 2_000, 500.0, 1),
    scenario("1,000 on one stream", 1_000, 1, 2_000, 500.0, 1),
    scenario("10,000 on one stream", 10_000, 1, 1_000, 250.0, 1),
    scenario("10,000 on 1,000 streams", 10_000, 1_000, 4_000, 500.0, 1),
    scenario("bursts of 1,000", 80, 1, 10_000, 1_000.0, 1_000),
];

const fn scenario(
    name: &'static str,
    subscribers: usize,
    streams: usize,
    events: usize,
    rate: f64,
    burst: usize,
) -> Scenario {
    Scenario {
        name,
        subscribers,
        streams,
        events,
        rate,
        burst,
    }
}

/// Which process publishes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum From {
    /// The process that holds the subscriptions, through the same bus.
    Within,
    /// Another process.
    Without,
}

impl From {
    fn name(self) -> &'static str {
        match self {
            Self::Within => "this process",
            Self::Without => "another",
        }
    }
}

/// The result of one round.
#[derive(Clone, Debug)]
struct Measured {
    outcome: subscribe::Outcome,
    transactions: u64,
}

type Key = (&'static str, Candidate, From);

pub(crate) fn measure(server: &Server, options: &Options, report: &mut Report) -> Result<(), Failure> {
    let mut all: HashMap<Key, Vec<Measured>> = HashMap::new();
    for scenario in SCENARIOS {
        let candidates = candidates(scenario);
        let scenario = if options.is_measuring() {
            *scenario
        } else {
            small(*scenario)
        };
        for round in 0..options.rounds() {
            for from in [From::Without, From::Within] {
                for &candidate in candidates {
                    eprintln!(
                        "fan_out: {}, from {}, {}, round {}",
                        scenario.name,
                        from.name(),
                        candidate.name(),
                        round + 1
                    );
                    let measured = one(server, scenario, candidate, from)?;
                    report.count(
                        format!("{}, {}", scenario.name, candidate.name()),
                        measured.outcome.errors,
                    );
                    all.entry((scenario.name, candidate, from)).or_default().push(measured);
                }
            }
        }
    }
    figures(&all, report);
    targets(&all, report);
    Ok(())
}

/// An upper bound for doorbell's figure divided by a peer's.
struct Target {
    scenario: &'static str,
    figure: &'static str,
    of: fn(&Measured) -> f64,
    peer: Candidate,
    most: f64,
}

const TARGETS: &[Target] = &[
    target("80 on one stream", "p50", p50, Candidate::Naive, 0.25),
    target("80 on one stream", "p99", p99, Candidate::Naive, 0.25),
    target("80 on one stream", "p50", p50, Candidate::PgBus, 0.8),
    target("80 on one stream", "p99", p99, Candidate::PgBus, 0.8),
    target("1,000 on one stream", "p50", p50, Candidate::PgBus, 0.7),
    target("10,000 on one stream", "p50", p50, Candidate::PgBus, 0.4),
    target("10,000 on 1,000 streams", "p50", p50, Candidate::PgBus, 0.6),
    target("10,000 on 1,000 streams", "CPU", cpu, Candidate::PgBus, 0.3),
];

const fn target(
    scenario: &'static str,
    figure: &'static str,
    of: fn(&Measured) -> f64,
    peer: Candidate,
    most: f64,
) -> Target {
    Target {
        scenario,
        figure,
        of,
        peer,
        most,
    }
}

fn p50(measured: &Measured) -> f64 {
    measured.outcome.last.quantile_millis(0.5)
}

fn p99(measured: &Measured) -> f64 {
    measured.outcome.last.quantile_millis(0.99)
}

fn cpu(measured: &Measured) -> f64 {
    measured.outcome.cpu
}

fn targets(all: &HashMap<Key, Vec<Measured>>, report: &mut Report) {
    for from in [From::Without, From::Within] {
        for target in TARGETS {
            let of = |candidate| {
                all.get(&(target.scenario, candidate, from))
                    .map(|rounds| median(rounds.iter().map(target.of)))
            };
            if let (Some(doorbell), Some(peer)) = (of(Candidate::Doorbell), of(target.peer)) {
                let what = format!(
                    "{}: {} to {}'s, published by {}",
                    target.scenario,
                    target.figure,
                    target.peer.name(),
                    from.name()
                );
                report.at_most(what, target.most, doorbell / peer);
            }
        }
    }
    for scenario in SCENARIOS {
        let Some(rounds) = all.get(&(scenario.name, Candidate::Doorbell, From::Without)) else {
            continue;
        };
        let reads = median(rounds.iter().map(|round| round.outcome.reads as f64)) / scenario.events as f64;
        let most = if scenario.burst > 1 { 0.1 } else { 1.1 };
        let what = format!("{}: reads per event and process", scenario.name);
        report.judge(what, format!("≤ {most}"), format!("{reads:.3}"), reads <= most);
        let connections = rounds
            .iter()
            .map(|round| round.outcome.connections)
            .max()
            .unwrap_or_default();
        let (what, most) = (format!("{}: connections", scenario.name), 1 + CONNECTIONS as usize);
        report.judge(what, format!("≤ {most}"), connections.to_string(), connections <= most);
    }
}

/// A small version that only shows that everything works.
fn small(scenario: Scenario) -> Scenario {
    Scenario {
        subscribers: if scenario.streams > 1 { 40 } else { 8 },
        streams: scenario.streams.min(20),
        events: 40,
        rate: 500.0,
        burst: scenario.burst.min(20),
        ..scenario
    }
}

fn candidates(scenario: &Scenario) -> &'static [Candidate] {
    // Every subscriber of the naive design needs a connection.
    if scenario.subscribers <= 80 {
        &[Candidate::Doorbell, Candidate::PgBus, Candidate::Naive]
    } else {
        &[Candidate::Doorbell, Candidate::PgBus]
    }
}

fn one(server: &Server, scenario: Scenario, candidate: Candidate, from: From) -> Result<Measured, Failure> {
    let database = servers::database(server)?;
    let load = Load {
        streams: scenario.streams,
        first: 0,
        events: scenario.events,
        rate: scenario.rate,
        burst: scenario.burst,
    };
    let mut subscriber = Worker::start(&Job::Subscribe(subscribe::Job {
        candidate,
        url: server.url_for(&database),
        port: server.port(),
        connections: if candidate == Candidate::Naive {
            ALL_CONNECTIONS - scenario.subscribers as u32
        } else {
            CONNECTIONS
        },
        subscribers: scenario.subscribers,
        load,
        warm_up: scenario.events / 10,
        publishes: from == From::Within,
        times_each: false,
    }))?;
    let publisher = match from {
        From::Within => None,
        From::Without => Some(Worker::start(&Job::Publish(publish::Job {
            candidate,
            url: server.url_for(&database),
            load,
        }))?),
    };
    subscriber.go()?;
    if let Some(publisher) = publisher {
        publisher.run::<()>()?;
    }
    let outcome: subscribe::Outcome = subscriber.outcome()?;
    Ok(Measured {
        outcome,
        transactions: servers::transactions(server, &database)?,
    })
}

fn figures(all: &HashMap<Key, Vec<Measured>>, report: &mut Report) {
    let mut table = Table::new(&[
        ("subscribers", Align::Left),
        ("published by", Align::Left),
        ("bus", Align::Left),
        ("p50 ms", Align::Right),
        ("p99", Align::Right),
        ("max", Align::Right),
        ("connections", Align::Right),
        ("reads/event", Align::Right),
        ("transactions/event", Align::Right),
        ("CPU s", Align::Right),
        ("MiB", Align::Right),
    ]);
    for scenario in SCENARIOS {
        for from in [From::Without, From::Within] {
            for &candidate in candidates(scenario) {
                let Some(rounds) = all.get(&(scenario.name, candidate, from)) else {
                    continue;
                };
                let of = |figure: &dyn Fn(&Measured) -> f64| median(rounds.iter().map(figure));
                let per_event = |count: f64| format!("{:.2}", count / scenario.events as f64);
                table.row(&[
                    scenario.name.to_owned(),
                    from.name().to_owned(),
                    candidate.name().to_owned(),
                    format!("{:.2}", of(&|round| round.outcome.last.quantile_millis(0.5))),
                    format!("{:.2}", of(&|round| round.outcome.last.quantile_millis(0.99))),
                    format!("{:.1}", of(&|round| round.outcome.last.quantile_millis(1.0))),
                    format!("{:.0}", of(&|round| round.outcome.connections as f64)),
                    per_event(of(&|round| round.outcome.reads as f64)),
                    per_event(of(&|round| round.transactions as f64)),
                    format!("{:.2}", of(&|round| round.outcome.cpu)),
                    format!("{:.0}", of(&|round| round.outcome.resident)),
                ]);
            }
        }
    }
    report.section("Fan-out: from the append to the last delivery", &table);
}

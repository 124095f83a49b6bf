//! Weakens every named ordering of the engine, drops every named fence and plants every named fault, one at a time, and requires
//! that some model fails each time.
//!
//! ```text
//! cargo run --release -p doorbell-loom --bin mutants
//! cargo run --release -p doorbell-loom --bin mutants -- overflow.push
//! cargo run --release -p doorbell-loom --bin mutants -- --list
//! ```
//!
//! `killed-by.txt` says which models to try first. A mutant that no model kills must be listed there as argued, and be argued
//! for in `docs/memory-ordering.md`.

use doorbell_loom::child::{self, CHILD, Verdict};
use doorbell_loom::killers::Killers;
use doorbell_loom::mutation::Mutant;
use doorbell_loom::parallel;
use doorbell_loom::registry::{self, Model};
use doorbell_loom::repository;
use doorbell_loom::sites::{Kind, Site};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// An argued mutant is held by its argument, not by the search: it runs against the models that take no longer than this, so that
/// an argument that is no longer needed is noticed.
const QUICK: Duration = Duration::from_secs(3);

/// A mutated model explores about as much as the original; one that takes far longer is stopped, and shows nothing.
const PATIENCE: u32 = 4;
const LEAST_LIMIT: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some((first, rest)) = arguments.split_first()
        && first == CHILD
    {
        return child::serve(rest);
    }
    match drive(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn drive(arguments: &[String]) -> Result<bool, String> {
    let sites = read_sites()?;
    let killers = repository::killers()?;
    let (list, wanted): (Vec<&String>, Vec<&String>) = arguments.iter().partition(|argument| *argument == "--list");
    let trials: Vec<Trial<'_>> = sites
        .iter()
        .flat_map(|site| Trial::of(site, killers.get(&site.name)))
        .filter(|trial| wanted.is_empty() || wanted.iter().any(|part| trial.spec().contains(part.as_str())))
        .collect();
    if !list.is_empty() {
        for trial in &trials {
            println!("{}", trial.describe());
        }
        println!("{} sites, {} mutants", sites.len(), trials.len());
        return Ok(true);
    }
    if trials.is_empty() {
        return Err(format!("no mutant's name contains any of {wanted:?}"));
    }
    let start = Instant::now();
    let baseline = Baseline::measure()?;
    println!(
        "{} models pass unchanged ({:.0} s); {} mutants",
        baseline.models.len(),
        start.elapsed().as_secs_f64(),
        trials.len()
    );
    let mut summary = Summary::default();
    parallel::each(
        &trials,
        |trial| trial.run(&baseline),
        |trial, result| summary.add(trial, result),
    );
    Ok(summary.conclude(start.elapsed()))
}

/// The sites of the engine, each name once and none with an ordering that loom does not model.
fn read_sites() -> Result<Vec<Site>, String> {
    let sites = repository::sites()?;
    let mut names = BTreeMap::new();
    for site in &sites {
        let place = format!("{}:{}", site.file.display(), site.line);
        if site.kind == Kind::Operation("SeqCst".to_owned()) {
            return Err(format!(
                "{} ({place}): loom reads SeqCst operations as AcqRel; use a fence",
                site.name
            ));
        }
        if let Some(other) = names.insert(&site.name, place.clone()) {
            return Err(format!("{} is the name of two sites: {other} and {place}", site.name));
        }
    }
    Ok(sites)
}

/// What the models do without any mutant.
struct Baseline {
    models: Vec<Measured>,
}

struct Measured {
    model: Model,
    elapsed: Duration,
    reached: BTreeSet<String>,
}

impl Baseline {
    /// Runs every model once; fails if one fails, for then it would kill everything.
    fn measure() -> Result<Self, String> {
        let mut models = Vec::new();
        let mut failed = Vec::new();
        parallel::each(
            &registry::all(),
            |model| child::run(model.name, None, Duration::from_secs(300)),
            |model, outcome| match outcome {
                Ok(outcome) if outcome.verdict == Verdict::Passed => models.push(Measured {
                    model: *model,
                    elapsed: outcome.elapsed,
                    reached: outcome.reached.into_iter().collect(),
                }),
                Ok(_) => failed.push(model.name.to_owned()),
                Err(error) => failed.push(format!("{} ({error})", model.name)),
            },
        );
        if !failed.is_empty() {
            return Err(format!("without any mutant these models fail: {}", failed.join(", ")));
        }
        models.sort_by_key(|measured| measured.elapsed);
        Ok(Self { models })
    }
}

/// One mutant, and what `killed-by.txt` says about it.
struct Trial<'a> {
    site: &'a Site,
    change: &'static str,
    named: &'a [String],
    argued: bool,
}

impl<'a> Trial<'a> {
    fn of(site: &'a Site, killers: Option<&'a Killers>) -> impl Iterator<Item = Self> + use<'a> {
        site.changes().iter().map(move |change| Self {
            site,
            change,
            named: killers.map_or(&[], |killers| &killers.models),
            argued: killers.is_some_and(|killers| killers.argued.iter().any(|argued| argued == change)),
        })
    }

    fn spec(&self) -> String {
        format!("{}={}", self.site.name, self.change)
    }

    fn describe(&self) -> String {
        format!(
            "{:<32} {:>7} -> {:<8}",
            self.site.name,
            self.site.kind.to_string(),
            self.change
        )
    }

    /// Runs the models that reach the site, those that `killed-by.txt` names first, then the quick ones, until one fails.
    fn run(&self, baseline: &Baseline) -> Result<Fate, String> {
        let mutant: Mutant = self.spec().parse()?;
        let mut candidates: Vec<&Measured> = baseline
            .models
            .iter()
            .filter(|measured| measured.reached.contains(&self.site.name))
            .filter(|measured| !self.argued || measured.elapsed <= QUICK)
            .collect();
        candidates.sort_by_key(|measured| !self.names(measured.model.name));
        let mut fate = Fate {
            tried: 0,
            killer: None,
            timed_out: Vec::new(),
        };
        for measured in candidates {
            let limit = (measured.elapsed * PATIENCE).max(LEAST_LIMIT);
            let name = measured.model.name;
            let outcome = child::run(name, Some(&mutant), limit).map_err(|error| error.to_string())?;
            fate.tried += 1;
            match outcome.verdict {
                Verdict::Failed => {
                    fate.killer = Some((name, outcome.elapsed));
                    break;
                }
                Verdict::TimedOut => fate.timed_out.push(name),
                Verdict::Passed => {}
            }
        }
        Ok(fate)
    }

    fn names(&self, model: &str) -> bool {
        self.named.iter().any(|named| named == model)
    }
}

/// The outcome of a mutant.
struct Fate {
    tried: usize,
    killer: Option<(&'static str, Duration)>,
    timed_out: Vec<&'static str>,
}

#[derive(Default)]
struct Summary {
    killed: usize,
    argued: usize,
    problems: Vec<String>,
}

impl Summary {
    fn add(&mut self, trial: &Trial<'_>, result: Result<Fate, String>) {
        let what = trial.describe();
        let fate = match result {
            Ok(fate) => fate,
            Err(error) => return self.problem(&what, "ERROR", error),
        };
        match fate.killer {
            Some((model, _)) if trial.argued => {
                self.problem(&what, "ARGUED", format!("yet {model} kills it: correct killed-by.txt"));
            }
            Some((model, elapsed)) => {
                self.killed += 1;
                println!("{what} killed by {model}, {:.2} s", elapsed.as_secs_f64());
                if !trial.names(model) {
                    self.problem(&what, "KILLER", format!("killed-by.txt does not name {model}"));
                }
            }
            None if trial.argued => {
                self.argued += 1;
                println!("{what} argued, {} models pass", fate.tried);
            }
            None if fate.tried == 0 => self.problem(&what, "SURVIVED", "no model reaches it"),
            None => {
                let mut detail = format!("{} models pass", fate.tried);
                if !fate.timed_out.is_empty() {
                    detail += &format!(", timed out: {}", fate.timed_out.join(", "));
                }
                self.problem(&what, "SURVIVED", detail);
            }
        }
    }

    fn problem(&mut self, what: &str, verdict: &str, detail: impl Display) {
        println!("{what} {verdict}: {detail}");
        self.problems.push(format!("{what} {verdict}: {detail}"));
    }

    /// Prints the summary; true if there are no problems.
    fn conclude(&self, elapsed: Duration) -> bool {
        if !self.problems.is_empty() {
            println!("\nproblems:");
            for problem in &self.problems {
                println!("  {problem}");
            }
        }
        println!(
            "\n{} killed, {} argued, {} problems, {:.0} s",
            self.killed,
            self.argued,
            self.problems.len(),
            elapsed.as_secs_f64()
        );
        self.problems.is_empty()
    }
}

//! What a model is, and the list of all of them.

use crate::models;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// How far loom explores a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// Every execution.
    Exhaustive,
    /// Every execution with at most this many preemptions.
    Preemptions(usize),
}

/// One small concurrent program over the engine's own types, and what it shows.
#[derive(Debug, Clone, Copy)]
pub struct Model {
    /// The name given on the command line and in the documents.
    pub name: &'static str,
    /// The clauses of `docs/contract.md` that it checks.
    pub clauses: &'static [u8],
    /// How far it is explored.
    pub bound: Bound,
    /// One execution.
    pub run: fn(),
}

/// Enough for the longest model; loom panics beyond it, so a runaway loop fails.
const MAX_BRANCHES: usize = 20_000;

static EXECUTIONS: AtomicU64 = AtomicU64::new(0);

impl Model {
    /// Runs every execution within the bound and returns how many there were; panics at the first that goes wrong.
    pub fn check(&self) -> u64 {
        let mut builder = loom::model::Builder::new();
        // Everything that loom would take from the environment is set here; a limit on time or on executions would end the
        // model as passed.
        builder.max_branches = MAX_BRANCHES;
        builder.max_duration = None;
        builder.max_permutations = None;
        builder.checkpoint_file = None;
        builder.preemption_bound = match self.bound {
            Bound::Exhaustive => None,
            Bound::Preemptions(count) => Some(count),
        };
        let run = self.run;
        let before = EXECUTIONS.load(Ordering::Relaxed);
        builder.check(move || {
            EXECUTIONS.fetch_add(1, Ordering::Relaxed);
            run();
        });
        EXECUTIONS.load(Ordering::Relaxed) - before
    }
}

/// Every model.
pub fn all() -> Vec<Model> {
    models::ALL.concat()
}

/// The model of exactly this name.
pub fn find(name: &str) -> Option<Model> {
    all().into_iter().find(|model| model.name == name)
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exhaustive => f.write_str("exhaustive"),
            Self::Preemptions(count) => write!(f, "preemptions <= {count}"),
        }
    }
}

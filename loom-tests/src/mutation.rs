//! One deliberate mistake in the engine, chosen by name when the process starts.
//!
//! Every ordering, fence and plantable fault of the engine looks up its mutation here once per process, so a model runs at full
//! speed whether it is mutated or not. The same lookup records which sites a model reaches.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, OnceLock, PoisonError};

/// What is done to a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The ordering of an operation or of a fence is replaced by a weaker one.
    Weakened(Ordering),
    /// A fence is left out.
    Dropped,
    /// A protocol fault is planted.
    Planted,
}

/// A site of the engine and what is done to it, written `site=Relaxed`, `site=dropped` or `site=planted`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mutant {
    /// The name at the site.
    pub site: String,
    /// What is done there.
    pub change: Change,
}

static ACTIVE: OnceLock<Mutant> = OnceLock::new();
static REACHED: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

/// Applies `mutant` for the rest of this process; must be called before any model runs.
///
/// # Panics
/// If a mutant is already active.
pub fn activate(mutant: Mutant) {
    let before = ACTIVE.set(mutant);
    assert!(before.is_ok(), "only one mutant per process");
}

/// The names of all sites that this process has executed so far.
pub fn reached() -> Vec<&'static str> {
    let reached = REACHED.lock().unwrap_or_else(PoisonError::into_inner);
    reached.iter().copied().collect()
}

/// The ordering to use at `site`, where the source says `written`.
pub(crate) fn ordering(site: &'static str, written: Ordering) -> Ordering {
    match change_at(site) {
        Some(Change::Weakened(weaker)) => weaker,
        Some(other) => panic!("{site} is an ordering, it cannot be {other}"),
        None => written,
    }
}

/// The strength of the fence at `site`; nothing if it is left out.
pub(crate) fn fence(site: &'static str) -> Option<Ordering> {
    match change_at(site) {
        Some(Change::Weakened(weaker)) => Some(weaker),
        Some(Change::Dropped) => None,
        Some(Change::Planted) => panic!("{site} is a fence, not a fault"),
        None => Some(Ordering::SeqCst),
    }
}

/// Whether the fault of this name is planted.
pub(crate) fn fault(name: &'static str) -> bool {
    match change_at(name) {
        Some(Change::Planted) => true,
        Some(other) => panic!("{name} is a fault, it cannot be {other}"),
        None => false,
    }
}

fn change_at(site: &'static str) -> Option<Change> {
    REACHED.lock().unwrap_or_else(PoisonError::into_inner).insert(site);
    ACTIVE
        .get()
        .filter(|mutant| mutant.site == site)
        .map(|mutant| mutant.change)
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Weakened(weaker) => write!(f, "{weaker:?}"),
            Self::Dropped => f.write_str("dropped"),
            Self::Planted => f.write_str("planted"),
        }
    }
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.site, self.change)
    }
}

impl FromStr for Change {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "Relaxed" => Self::Weakened(Ordering::Relaxed),
            "Acquire" => Self::Weakened(Ordering::Acquire),
            "Release" => Self::Weakened(Ordering::Release),
            "AcqRel" => Self::Weakened(Ordering::AcqRel),
            "dropped" => Self::Dropped,
            "planted" => Self::Planted,
            _ => return Err(format!("unknown change {text:?}")),
        })
    }
}

impl FromStr for Mutant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (site, change) = text
            .split_once('=')
            .ok_or_else(|| format!("{text:?} is not SITE=CHANGE"))?;
        Ok(Self {
            site: site.to_owned(),
            change: change.parse()?,
        })
    }
}

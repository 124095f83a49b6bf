//! The files of the repository that the mutants and the ordering table are made from.

use crate::killers::{self, Killers};
use crate::sites::{self, Site};
use crate::{ordering_table, registry};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn path(relative: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(relative)
}

fn read(relative: &str) -> Result<(PathBuf, String), String> {
    let path = path(relative);
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok((path, text)),
        Err(error) => Err(format!("{relative}: {error}")),
    }
}

/// The sites of the engine.
///
/// # Errors
/// If the source cannot be read.
pub fn sites() -> Result<Vec<Site>, String> {
    sites::scan(&path("src/ring")).map_err(|error| format!("src/ring: {error}"))
}

/// What `killed-by.txt` says, by site.
///
/// # Errors
/// If it cannot be read.
pub fn killers() -> Result<BTreeMap<String, Killers>, String> {
    let (_, text) = read("loom-tests/killed-by.txt")?;
    killers::read(&text).map_err(|error| format!("killed-by.txt, {error}"))
}

/// The path of `docs/memory-ordering.md`, its text, and what its text ought to be.
///
/// # Errors
/// If a file cannot be read, or as [`ordering_table::render`].
pub fn ordering_document() -> Result<(PathBuf, String, String), String> {
    let (path, text) = read("docs/memory-ordering.md")?;
    let models = registry::all().into_iter().map(|model| model.name).collect();
    let new = ordering_table::render(&text, &sites()?, &killers()?, &models)?;
    Ok((path, text, new))
}

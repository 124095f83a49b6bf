//! What is written to files besides the terminal.

use std::error::Error;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Tries to create them: better now than after minutes of measuring.
pub(crate) fn can_be_written<'a>(paths: impl Iterator<Item = &'a PathBuf>) -> Result<(), String> {
    for path in paths {
        File::create(path).map_err(|error| cannot_write(path, &error))?;
    }
    Ok(())
}

pub(crate) fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| cannot_write(path, &error))
}

pub(crate) fn cannot_write(path: &Path, error: &dyn Error) -> String {
    format!("cannot write {}: {error}", path.display())
}

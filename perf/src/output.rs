//! The files that a measurement of latency writes besides its table.

use std::error::Error;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use clap::Args;

use crate::plot::{self, Chart};

#[derive(Debug, Args)]
pub(crate) struct Output {
    /// Write the table to this file too, as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,

    /// Draw the distributions to this file, as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

impl Output {
    /// Creates the files, to fail before the measurement rather than after.
    pub(crate) fn check(&self) -> Result<(), String> {
        for path in self.csv.iter().chain(&self.svg) {
            File::create(path).map_err(|error| cannot_write(path, &error))?;
        }
        Ok(())
    }

    pub(crate) fn write(&self, csv: &str, charts: &[Chart<'_>]) -> Result<(), String> {
        if let Some(path) = &self.csv {
            fs::write(path, csv).map_err(|error| cannot_write(path, &error))?;
        }
        if let Some(path) = &self.svg {
            plot::draw(path, charts).map_err(|error| cannot_write(path, &*error))?;
        }
        Ok(())
    }
}

fn cannot_write(path: &Path, error: &dyn Error) -> String {
    format!("cannot write {}: {error}", path.display())
}

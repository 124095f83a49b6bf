//! Where the lines come from.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::PathBuf;

use crate::exit::Failure;

/// See `examples/data/README.md`.
const BUILT_IN: &[u8] = include_bytes!("../data/postgres.log");

/// An input that has not been opened yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    BuiltIn,
    Stdin,
    File(PathBuf),
}

impl Source {
    pub(crate) fn new(argument: Option<PathBuf>) -> Self {
        match argument {
            None => Self::BuiltIn,
            Some(path) if path.as_os_str() == "-" => Self::Stdin,
            Some(path) => Self::File(path),
        }
    }

    /// Says what is wrong before anything is started.
    pub(crate) fn check(&self, repeat: u64) -> Result<(), Failure> {
        let rewinds = match self {
            Self::BuiltIn => true,
            Self::Stdin => false,
            Self::File(path) => {
                let metadata = fs::metadata(path).map_err(|error| Failure::new(self.cannot_read(&error)))?;
                if metadata.is_dir() {
                    return Err(Failure::new(format!("{self} is a directory")));
                }
                // Opening a pipe would wait for its writer, and then again in the reader.
                if metadata.is_file() {
                    File::open(path).map_err(|error| Failure::new(self.cannot_read(&error)))?;
                }
                metadata.is_file()
            }
        };
        if repeat > 1 && !rewinds {
            return Err(Failure::wrong_usage(format!(
                "{self} can only be read once: --repeat needs a regular file"
            )));
        }
        Ok(())
    }

    pub(crate) fn open(&self) -> io::Result<Box<dyn Read>> {
        Ok(match self {
            Self::BuiltIn => Box::new(BUILT_IN),
            Self::Stdin => Box::new(io::stdin().lock()),
            Self::File(path) => Box::new(File::open(path)?),
        })
    }

    /// The number of bytes, where that is known beforehand.
    pub(crate) fn size(&self) -> Option<u64> {
        match self {
            Self::BuiltIn => Some(BUILT_IN.len() as u64),
            Self::Stdin => None,
            Self::File(path) => fs::metadata(path)
                .ok()
                .filter(fs::Metadata::is_file)
                .map(|metadata| metadata.len()),
        }
    }

    pub(crate) fn cannot_read(&self, error: &io::Error) -> String {
        format!("cannot read {self}: {error}")
    }
}

impl fmt::Display for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn => formatter.write_str("the built-in PostgreSQL log"),
            Self::Stdin => formatter.write_str("standard input"),
            Self::File(path) => path.display().fmt(formatter),
        }
    }
}

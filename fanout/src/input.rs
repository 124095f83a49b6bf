//! Where the lines come from.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use clap::error::ErrorKind;

use crate::options::Options;

/// See `data/README.md`.
const BUILT_IN: &[u8] = include_bytes!("../data/postgres.log");

/// An input that has not been opened yet.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    BuiltIn,
    Stdin,
    File(PathBuf),
}

impl Input {
    /// Reports what is wrong with the input before the run starts. Exits with the status for wrong usage if it cannot be
    /// read `repeat` times.
    pub(crate) fn new(argument: Option<&Path>, repeat: u64) -> Result<Self, String> {
        let (input, rereadable) = match argument {
            None => (Self::BuiltIn, true),
            Some(path) if path.as_os_str() == "-" => (Self::Stdin, false),
            Some(path) => {
                let input = Self::File(path.to_owned());
                let metadata = fs::metadata(path).map_err(|error| input.cannot_read(&error))?;
                if metadata.is_dir() {
                    return Err(format!("{input} is a directory"));
                }
                // Opening a named pipe would wait for its writer, here and again in the reader.
                if metadata.is_file() {
                    File::open(path).map_err(|error| input.cannot_read(&error))?;
                }
                (input, metadata.is_file())
            }
        };
        if repeat > 1 && !rereadable {
            let message = format!("{input} can only be read once: --repeat needs a regular file");
            Options::command().error(ErrorKind::ArgumentConflict, message).exit();
        }
        Ok(input)
    }

    pub(crate) fn open(&self) -> io::Result<Box<dyn Read>> {
        Ok(match self {
            Self::BuiltIn => Box::new(BUILT_IN),
            Self::Stdin => Box::new(io::stdin().lock()),
            Self::File(path) => Box::new(File::open(path)?),
        })
    }

    /// The size in bytes, if known beforehand.
    pub(crate) fn size(&self) -> Option<u64> {
        match self {
            Self::BuiltIn => Some(BUILT_IN.len() as u64),
            Self::Stdin => None,
            Self::File(path) => fs::metadata(path)
                .ok()
                .filter(fs::Metadata::is_file)
                .map(|file| file.len()),
        }
    }

    pub(crate) fn cannot_read(&self, error: &io::Error) -> String {
        format!("cannot read {self}: {error}")
    }
}

impl fmt::Display for Input {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn => formatter.write_str("the built-in PostgreSQL log"),
            Self::Stdin => formatter.write_str("standard input"),
            Self::File(path) => path.display().fmt(formatter),
        }
    }
}

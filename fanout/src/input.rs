//! Where the lines come from.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// See `data/README.md`.
const BUILT_IN: &[u8] = include_bytes!("../data/postgres.log");

/// A file, or `-` for standard input, or by default the built-in log.
#[derive(Clone, Debug)]
pub(crate) struct Input(Option<PathBuf>);

impl Input {
    /// Reports what is wrong with the input before the run starts.
    pub(crate) fn new(path: Option<PathBuf>) -> Result<Self, String> {
        let input = Self(path);
        if let Some(path) = input.file() {
            let metadata = fs::metadata(path).map_err(|error| input.cannot_read(&error))?;
            if metadata.is_dir() {
                return Err(format!("{input} is a directory"));
            }
            // Opening a named pipe would wait for its writer, here and again in the reader.
            if metadata.is_file() {
                File::open(path).map_err(|error| input.cannot_read(&error))?;
            }
        }
        Ok(input)
    }

    fn file(&self) -> Option<&Path> {
        self.0.as_deref().filter(|path| path.as_os_str() != "-")
    }

    pub(crate) fn open(&self) -> io::Result<Box<dyn Read>> {
        Ok(match (&self.0, self.file()) {
            (None, _) => Box::new(BUILT_IN),
            (_, Some(path)) => Box::new(File::open(path)?),
            (_, None) => Box::new(io::stdin().lock()),
        })
    }

    /// The size in bytes, if known in advance.
    pub(crate) fn size(&self) -> Option<u64> {
        match &self.0 {
            None => Some(BUILT_IN.len() as u64),
            Some(_) => fs::metadata(self.file()?)
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
        match (&self.0, self.file()) {
            (None, _) => formatter.write_str("the built-in PostgreSQL log"),
            (_, Some(path)) => path.display().fmt(formatter),
            (_, None) => formatter.write_str("standard input"),
        }
    }
}

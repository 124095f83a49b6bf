//! What can go wrong.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

/// Why a server could not be started, asked or disturbed.
///
/// ```
/// use throwaway_postgres::{Error, Server};
///
/// let error = Server::builder().binaries("/nowhere").start().unwrap_err();
/// assert!(matches!(error, Error::MissingBinary { .. }));
/// assert!(error.to_string().contains("apt-get install"));
/// ```
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// A program of PostgreSQL is not installed.
    #[error(
        "PostgreSQL's program {program} was not found in {searched:?}; install it by `apt-get install --no-install-recommends \
         postgresql`, or let DOORBELL_PG_BIN name the directory that holds it"
    )]
    MissingBinary {
        /// The program.
        program: &'static str,
        /// Where it was looked for.
        searched: Vec<PathBuf>,
    },
    /// pgbouncer is not installed.
    #[error(
        "pgbouncer was not found on PATH or in /usr/sbin; install it by `apt-get install --no-install-recommends pgbouncer`"
    )]
    MissingPooler,
    /// This process runs as root, as which PostgreSQL refuses to run, and there is no user to run it as.
    #[error("PostgreSQL does not run as root, and there is neither a user `postgres` nor a user `nobody` to run it as")]
    NoAccount,
    /// The directory that servers share belongs to somebody else.
    #[error("{path:?} belongs to another user or is not a directory; remove it, or set TMPDIR to another place")]
    ForeignDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// A file or process could not be worked with.
    #[error("could not {action}: {source}")]
    Io {
        /// What was tried.
        action: String,
        /// What the system says.
        source: io::Error,
    },
    /// A program failed.
    #[error("{program} failed ({status}): {output}")]
    Command {
        /// The program.
        program: String,
        /// Its exit status.
        status: std::process::ExitStatus,
        /// What it wrote to its standard error.
        output: String,
    },
    /// The server ended while it was starting, or did not get ready in time.
    #[error("the server did not start: {reason}; the end of its log:\n{log}")]
    Start {
        /// What happened.
        reason: String,
        /// The last lines of the server's log.
        log: String,
    },
    /// All ports that were tried are taken.
    #[error("no free port on 127.0.0.1 was found in {tries} tries")]
    NoPort {
        /// How many were tried.
        tries: u32,
    },
    /// The server is stopped; start it again first.
    #[error("the server is stopped; start it again first")]
    NotRunning,
    /// The server is running; stop it first.
    #[error("the server is running; stop it first")]
    Running,
    /// No such process belongs to this server.
    #[error("process {pid} is not a backend of this server")]
    NotABackend {
        /// The process.
        pid: u32,
    },
    /// Something did not happen in time.
    #[error("{what} did not happen within {limit:?}; the end of the server's log:\n{log}")]
    Timeout {
        /// What was waited for.
        what: String,
        /// How long.
        limit: Duration,
        /// The last lines of the server's log.
        log: String,
    },
    /// The server is not ours: `DATABASE_URL` names it, and tests neither stop nor disturb it.
    #[error("the server that DATABASE_URL names is not ours to stop or disturb; unset DATABASE_URL for this test")]
    NotOurs,
    /// `DATABASE_URL`, or the URL that was given, is not of the form `postgres://user@host:port/database`.
    #[error(
        "the server's URL is not of the form postgres://user@host:port/database; it is DATABASE_URL unless another one was given"
    )]
    UnusableUrl,
}

impl Error {
    pub(crate) fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let action = action.into();
        move |source| Self::Io { action, source }
    }
}

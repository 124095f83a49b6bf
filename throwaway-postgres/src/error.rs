//! Errors.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

/// The error of an operation on a server.
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
        "PostgreSQL's program {program} was not found in {searched:?}; install it with `apt-get install --no-install-recommends \
         postgresql`, or set DOORBELL_PG_BIN to the directory that contains it"
    )]
    MissingBinary {
        /// The program.
        program: &'static str,
        /// The directories searched.
        searched: Vec<PathBuf>,
    },
    /// pgbouncer is not installed.
    #[error(
        "pgbouncer was not found on PATH or in /usr/sbin; install it with `apt-get install --no-install-recommends pgbouncer`"
    )]
    MissingPooler,
    /// This process runs as root, which PostgreSQL refuses, and there is no other user to run it as.
    #[error("PostgreSQL does not run as root, and there is no user `postgres` or `nobody` to run it as")]
    NoOsUser,
    /// The directory that servers share belongs to another user.
    #[error("{path:?} belongs to another user or is not a directory; remove it, or set TMPDIR to another directory")]
    ForeignDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// An operation on a file or process failed.
    #[error("could not {action}: {source}")]
    Io {
        /// The operation.
        action: String,
        /// The system's error.
        source: io::Error,
    },
    /// A program failed.
    #[error("{program} failed ({status}): {output}")]
    Command {
        /// The program.
        program: String,
        /// Its exit status.
        status: std::process::ExitStatus,
        /// Its standard error output.
        output: String,
    },
    /// The server exited while starting, or was not ready in time.
    #[error("the server did not start: {reason}; the end of its log:\n{log}")]
    Start {
        /// The reason.
        reason: String,
        /// The last lines of the server's log.
        log: String,
    },
    /// All ports that were tried are in use.
    #[error("no free port on 127.0.0.1 found in {tries} tries")]
    NoPort {
        /// The number of ports tried.
        tries: u32,
    },
    /// The server is stopped; start it again first.
    #[error("the server is stopped; start it again first")]
    NotRunning,
    /// The server is running; stop it first.
    #[error("the server is running; stop it first")]
    Running,
    /// The process is not a backend of this server.
    #[error("process {pid} is not a backend of this server")]
    NotABackend {
        /// The process id.
        pid: u32,
    },
    /// An operation did not finish in time.
    #[error("{what} did not happen within {limit:?}; the end of the server's log:\n{log}")]
    Timeout {
        /// The awaited event.
        what: String,
        /// The time limit.
        limit: Duration,
        /// The last lines of the server's log.
        log: String,
    },
    /// `DATABASE_URL` names the server, so tests must not stop it or inject faults.
    #[error(
        "tests must not stop the server that DATABASE_URL names or inject faults into it; unset DATABASE_URL for this test"
    )]
    NotOurs,
    /// `DATABASE_URL`, or the URL passed by the caller, is not of the form `postgres://user@host:port/database`.
    #[error("the server's URL (from DATABASE_URL or the caller) is not of the form postgres://user@host:port/database")]
    UnusableUrl,
}

impl Error {
    pub(crate) fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let action = action.into();
        move |source| Self::Io { action, source }
    }
}

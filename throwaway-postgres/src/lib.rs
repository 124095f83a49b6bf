//! Private PostgreSQL servers for tests, benchmarks and examples. They start in well under a second, can be killed, frozen and
//! restarted, and are removed when the process that started them ends, however it ends.
//!
//! ```
//! use throwaway_postgres::Server;
//!
//! # fn main() -> Result<(), throwaway_postgres::Error> {
//! let server = Server::start()?;
//! assert!(server.url().starts_with("postgres://postgres@127.0.0.1:"));
//! assert_eq!(server.psql("SELECT 6 * 7")?, "42");
//! # Ok(())
//! # }
//! ```
//!
//! | type | what it is |
//! |---|---|
//! | [`Server`] | a private server, with the faults to inject into it: [`stop`](Server::stop), [`restart`](Server::restart), [`freeze`](Server::freeze), [`terminate_backend`](Server::terminate_backend), [`standby`](Server::standby), [`promote`](Server::promote), [`dump`](Server::dump) |
//! | [`Database`] | an empty database for one test, on a server shared by the tests of a process, or on the server that `DATABASE_URL` names |
//! | [`Pooler`] | a pgbouncer in front of a server |
//!
//! # Binaries
//!
//! If `DOORBELL_PG_BIN` is set, it names the directory with `initdb` and `postgres`. Otherwise the highest version under
//! `/usr/lib/postgresql` is used, or else the one on `PATH`. If there is none, [`Error::MissingBinary`] says how to install it.
//!
//! # Files
//!
//! Everything is in the directory for temporary files. Each server has its own directory. `throwaway-postgres-UID` holds what
//! servers share: the locks on their ports, and an initialised data directory for each kind of server, from which new ones are
//! copied. PostgreSQL refuses to run as root, so a root process runs it as the user `postgres`, or else `nobody`.
//!
//! # Clean-up
//!
//! Dropping the handle stops the server at once and removes its directory. If the owning process ends without dropping it (by a
//! panic, by a signal, or with the handle in a `static`), a small watchdog process does the same.
//!
//! # Blocking
//!
//! Every call blocks the calling thread until it is done, typically for 20 to 500 ms. If other tasks of an async test must run
//! meanwhile, use a multi-threaded runtime or `spawn_blocking`. All methods take `&self`, and handles are `Send` and `Sync`.
//!
//! This crate works only on Linux, because it finds processes in `/proc`.

mod backends;
mod binaries;
mod builder;
mod command;
mod config;
mod database;
mod dump;
mod error;
mod os_user;
mod pooler;
mod port;
mod postmaster;
mod processes;
mod server;
mod shared_dir;
mod sql;
mod standby;
mod template;
mod url;
mod watchdog;

pub use builder::Builder;
pub use database::Database;
pub use error::Error;
pub use pooler::Pooler;
pub use server::{Server, Stop};

//! Private PostgreSQL servers for tests, benchmarks and examples: started in well under a second, killed, frozen and restarted at
//! will, and gone with the process that started them, however it ends.
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
//! | what | |
//! |---|---|
//! | [`Server`] | a server of one's own, with everything that can go wrong with it: [`stop`](Server::stop), [`restart`](Server::restart), [`freeze`](Server::freeze), [`terminate_backend`](Server::terminate_backend), [`standby`](Server::standby), [`promote`](Server::promote), [`dump`](Server::dump) |
//! | [`Database`] | a fresh database for one test, on a server that the tests of a process share, or on the one that `DATABASE_URL` names |
//! | [`Pooler`] | a pgbouncer before a server |
//!
//! # Where the binaries come from
//!
//! `DOORBELL_PG_BIN`, if set, names the directory with `initdb` and `postgres`. Otherwise the highest version under
//! `/usr/lib/postgresql` is taken, else what is found on `PATH`. Without any, [`Error::MissingBinary`] says how to install them.
//!
//! # Where the servers live
//!
//! In the directory for temporary files: one directory for each server, and `throwaway-postgres-UID` with what they share: a
//! freshly initialised data directory for each kind of server, from which new ones are copied, and the locks on the ports.
//! PostgreSQL refuses to run as root, so a process of root's starts it as the user `postgres`, or else `nobody`.
//!
//! # How they end
//!
//! Dropping the handle stops a server at once and removes its directory. A small watchdog process does the same when the owner has
//! ended without dropping it: by a panic, by a signal, or with the handle in a `static`.
//!
//! # Blocking
//!
//! Every call blocks the calling thread until it is done, typically for 20 to 500 ms. In an async test whose other tasks should go
//! on meanwhile, use a multi-threaded runtime, or `spawn_blocking`: all methods take `&self`, and handles are `Send` and `Sync`.
//!
//! Linux only: processes are found in `/proc`.

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

//! Shared by everything that talks to Postgres: connection options, pooled connections, back-off, deadlines, quoting and errors.

pub(crate) mod backoff;
pub(crate) mod config;
pub(crate) mod connect;
pub(crate) mod deadline;
pub(crate) mod encoding;
pub(crate) mod login;
pub(crate) mod quote;
pub(crate) mod server_choice;
pub(crate) mod server_error;
pub(crate) mod warm_pool;

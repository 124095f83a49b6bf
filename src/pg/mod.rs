//! What everything that talks to Postgres shares: connection options, pooled connections, back-off and quoting.

pub(crate) mod backoff;
pub(crate) mod config;
pub(crate) mod quote;
pub(crate) mod server_error;
pub(crate) mod warm_pool;

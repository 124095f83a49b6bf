//! Starts a throwaway server, prints its URL, and keeps it until standard input ends or the process is terminated.
//!
//! ```sh
//! cargo run -p throwaway-postgres                       # until Ctrl-C or Ctrl-D
//! cargo run -p throwaway-postgres -- max_connections=20 # with settings
//! ```

use std::io::{Read, Write};
use std::process::ExitCode;

use throwaway_postgres::Server;

fn main() -> ExitCode {
    let mut builder = Server::builder();
    for argument in std::env::args().skip(1) {
        let Some((name, value)) = argument.split_once('=') else {
            eprintln!("expected NAME=VALUE, a parameter of postgresql.conf, got {argument:?}");
            return ExitCode::from(2);
        };
        builder = builder.setting(name, value);
    }
    let server = match builder.start() {
        Ok(server) => server,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    // If the URL cannot be written, do not keep the server.
    if writeln!(std::io::stdout(), "{}", server.url()).is_ok() {
        std::io::stdin().read_to_end(&mut Vec::new()).ok();
    }
    ExitCode::SUCCESS
}

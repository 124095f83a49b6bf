//! Writes the generated part of `docs/memory-ordering.md`.
//!
//! ```text
//! cargo run -p doorbell-loom --bin ordering-table
//! ```

use doorbell_loom::repository;
use std::process::ExitCode;

fn main() -> ExitCode {
    let written = repository::ordering_document()
        .and_then(|(path, _, new)| std::fs::write(&path, new).map_err(|error| format!("{}: {error}", path.display())));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

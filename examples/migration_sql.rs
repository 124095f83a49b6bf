//! Prints the SQL script that creates the event store, or brings it up to date.
//!
//! ```sh
//! cargo run --example migration_sql --features postgres -- doorbell > doorbell.sql
//! ```

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let schema = std::env::args().nth(1);
    let schema = schema.as_deref().unwrap_or(doorbell::store::DEFAULT_SCHEMA);
    print!("{}", doorbell::store::migration_sql(schema)?);
    Ok(())
}

//! Long measurements.
fn main() {}

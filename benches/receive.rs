//! In preparation.
fn main() {}

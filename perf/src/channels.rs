//! Broadcast channels behind common traits, each used in the best configuration that is still honest.

pub mod payload;
pub mod settings;
pub mod single_thread;
pub mod tasks;

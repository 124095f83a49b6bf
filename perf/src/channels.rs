//! Broadcast channels behind common traits, each used in the best configuration that is still honest.

pub mod lossy;
pub mod payload;
pub mod settings;
pub mod single_thread;
pub mod tasks;

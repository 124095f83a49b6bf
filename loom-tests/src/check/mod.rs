//! What the models assert: values are dropped once, every sequence is accounted for, and waiting subscribers are woken.

mod ledger;
mod reader;
mod waiting;
mod writer;

// The standard library's types, which loom does not see: all threads of a model run on one.
pub(crate) use testkit::wakers::WakeCounter;

pub(crate) use ledger::{Ledger, Token};
pub(crate) use reader::{History, Reader, Step};
pub(crate) use waiting::Waiting;
pub(crate) use writer::Writer;

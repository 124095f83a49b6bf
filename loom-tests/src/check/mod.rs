//! What the models assert: values are dropped once, every sequence is accounted for, and waiting subscribers are woken.

mod ledger;
mod reader;
mod waiting;
mod waker;
mod writer;

pub(crate) use ledger::{Ledger, Token};
pub(crate) use reader::{History, Reader, Step};
pub(crate) use waiting::Waiting;
pub(crate) use waker::WakeCounter;
pub(crate) use writer::Writer;

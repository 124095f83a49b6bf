//! What the models assert: that values are dropped once, that every sequence is accounted for, and that who waits is woken.

mod ledger;
mod reader;
mod waiting;
mod waker;
mod writer;

pub(crate) use ledger::{Ledger, Token};
pub(crate) use reader::{History, Reader, Step};
pub(crate) use waiting::Waiting;
pub(crate) use waker::WaitQueue;
pub(crate) use writer::Writer;

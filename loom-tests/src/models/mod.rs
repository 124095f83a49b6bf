//! The models, one file per theme.
//!
//! Every model is one small execution, with a fixed number of attempts and a drain after the joins: nothing spins. What is
//! published before the first thread starts costs loom nothing, so the models start close to the point of interest.

use crate::check::{History, Ledger, Reader, Writer};
use crate::registry::Model;
use crate::ring;
use crate::wake_watchdog;
use loom::thread::{self, JoinHandle};

mod announcements;
mod batch;
mod broadcast_handles;
mod broadcast_release;
mod close;
mod cluster;
mod diverted;
mod lag;
mod lapped;
mod order;
mod overflow;
mod overwrite;
mod parking;
mod release;
mod revoke;
mod subscribe;
mod values;
mod void;
mod wake;

/// Every model, theme by theme.
pub(crate) const ALL: &[&[Model]] = &[
    order::MODELS,
    overwrite::MODELS,
    batch::MODELS,
    lag::MODELS,
    void::MODELS,
    lapped::MODELS,
    revoke::MODELS,
    announcements::MODELS,
    diverted::MODELS,
    overflow::MODELS,
    subscribe::MODELS,
    values::MODELS,
    release::MODELS,
    close::MODELS,
    parking::MODELS,
    wake::MODELS,
    broadcast_release::MODELS,
    broadcast_handles::MODELS,
    cluster::MODELS,
];

/// A channel with one subscriber; publisher and subscriber are audited.
fn channel(capacity: usize, ledger: &Ledger) -> (Writer, Reader) {
    let (publisher, subscriber) = ring::channel(capacity);
    (Writer::new(publisher, ledger), Reader::new(subscriber))
}

/// Runs `work` with the writer on a new thread, then drops the publisher; the join returns what was published.
fn publishing(mut writer: Writer, work: impl FnOnce(&mut Writer) + 'static) -> JoinHandle<History> {
    thread::spawn(move || {
        work(&mut writer);
        writer.finish()
    })
}

/// Runs a model with a watchdog.
fn with_watchdog(run: fn()) {
    wake_watchdog::start();
    run();
    wake_watchdog::stop();
}

/// Ends most models: everything published is accounted for, and nothing was leaked or dropped twice.
fn conclude(mut reader: Reader, history: &History, ledger: &Ledger) {
    reader.drain(history.end(1));
    reader.audit(history);
    drop(reader);
    ledger.settle();
}

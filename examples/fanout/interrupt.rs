//! Ctrl-C: the first ends the run and reports, the second ends the process.

use std::sync::mpsc::SyncSender;
use std::thread::Thread;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::exit;
use crate::reader::FromReader;

/// Whether the user wants the run to end. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt(watch::Receiver<bool>);

impl Interrupt {
    /// Listens for Ctrl-C, SIGTERM and SIGHUP. The signal wakes the publisher wherever it waits: in [`Self::wait_until`]
    /// on this thread, or for lines that `reader` sends.
    pub(crate) fn listen(reader: SyncSender<FromReader>) -> Result<Self, ctrlc::Error> {
        let (raise, raised) = watch::channel(false);
        let publisher: Thread = std::thread::current();
        ctrlc::set_handler(move || {
            if raise.send_replace(true) {
                std::process::exit(exit::INTERRUPTED.into());
            }
            publisher.unpark();
            // When the channel is full the publisher is not waiting for it.
            let _ = reader.try_send(FromReader::Interrupted);
        })?;
        Ok(Self(raised))
    }

    pub(crate) fn is_raised(&self) -> bool {
        *self.0.borrow()
    }

    /// Lets time pass on the publisher's thread until `due` or the interrupt.
    pub(crate) fn wait_until(&self, due: Instant) {
        /// How late the operating system may wake a sleeper; the rest is waited out awake.
        const OVERSLEEP: Duration = Duration::from_micros(150);
        while !self.is_raised() {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            match left.checked_sub(OVERSLEEP) {
                Some(sleep) if !sleep.is_zero() => std::thread::park_timeout(sleep),
                _ => std::thread::yield_now(),
            }
        }
    }

    /// Lets time pass in a task for `delay` or until the interrupt.
    pub(crate) async fn sleep(&mut self, delay: Duration) {
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            _ = self.0.wait_for(|raised| *raised) => {}
        }
    }
}

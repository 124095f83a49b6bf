//! The thread that reads ahead of the publisher, by a bounded amount.

use std::io::{self, ErrorKind, Read};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Instant;

use crate::lines::{LineSplitter, Oddities};
use crate::source::Source;

/// Bytes read at a time.
const CHUNK: usize = 64 * 1024;
/// Chunks that wait for the publisher before the reader waits for it in turn.
const AHEAD: usize = 4;

/// What the publisher's thread hears.
#[derive(Debug)]
pub(crate) enum FromReader {
    Chunk(Chunk),
    /// The input has ended, with an error or without.
    End(Option<io::Error>),
    /// Sent by the signal handler, so that nobody waits for a terminal that stays silent.
    Interrupted,
}

/// The lines that one read completed.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) lines: Vec<Arc<str>>,
    pub(crate) bytes: u64,
    pub(crate) oddities: Oddities,
    pub(crate) arrived: Instant,
}

/// The two ends of the way from the reader to the publisher.
pub(crate) fn channel() -> (SyncSender<FromReader>, Receiver<FromReader>) {
    sync_channel(AHEAD)
}

/// Reads `source` `repeat` times. The thread ends when the input does or the publisher is gone; it may be left behind
/// in a read that never returns.
pub(crate) fn start(source: Source, repeat: u64, max_line: usize, to: SyncSender<FromReader>) -> io::Result<()> {
    let read = move || {
        let mut splitter = LineSplitter::new(max_line);
        let mut outcome = Ok(());
        for _ in 0..repeat {
            outcome = source.open().and_then(|input| read_once(input, &mut splitter, &to));
            if outcome.is_err() {
                break;
            }
        }
        // Nobody listens any more after an interrupt.
        let _ = to.send(FromReader::End(outcome.err()));
    };
    thread::Builder::new().name("reader".into()).spawn(read)?;
    Ok(())
}

fn read_once(mut input: Box<dyn Read>, splitter: &mut LineSplitter, to: &SyncSender<FromReader>) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    loop {
        let read = match input.read(&mut buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read,
        };
        let bytes = *read.as_ref().unwrap_or(&0);
        let mut lines = Vec::new();
        splitter.feed(&buffer[..bytes], &mut lines);
        if bytes == 0 {
            // Also before an error: what arrived is published.
            lines.extend(splitter.finish());
        }
        let chunk = Chunk {
            lines,
            bytes: bytes as u64,
            oddities: splitter.oddities,
            arrived: Instant::now(),
        };
        let publisher_is_gone = to.send(FromReader::Chunk(chunk)).is_err();
        read?;
        if bytes == 0 || publisher_is_gone {
            return Ok(());
        }
    }
}

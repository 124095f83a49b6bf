//! Bytes to lines, none longer than a limit, on a thread that reads ahead of the publisher.

use std::borrow::Cow;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Instant;

use crate::input::Input;

/// Bytes read at a time.
const BUFFER: usize = 64 * 1024;
/// Chunks that the reader may be ahead of the publisher.
const AHEAD: usize = 4;

/// Lines that arrived together.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    pub(crate) lines: Vec<Arc<str>>,
    pub(crate) bytes: u64,
    /// Lines longer than the limit, cut at a character boundary.
    pub(crate) truncated: u64,
    /// Lines with invalid UTF-8, which was replaced by U+FFFD.
    pub(crate) invalid_utf8: u64,
    pub(crate) arrived: Option<Instant>,
}

/// Reads the input on a new thread. An error is the last item. The thread ends when the input ends or the receiver is
/// dropped; it is left behind if a read never returns.
pub(crate) fn start_reader(input: Input, max_line: usize) -> io::Result<Receiver<io::Result<Chunk>>> {
    let (sender, receiver) = sync_channel(AHEAD);
    let read = move || {
        let result = input.open().and_then(|bytes| read_chunks(bytes, max_line, &sender));
        if let Err(error) = result {
            // The receiver is gone after an interrupt.
            let _ = sender.send(Err(error));
        }
    };
    thread::Builder::new().name("reader".into()).spawn(read)?;
    Ok(receiver)
}

fn read_chunks(input: impl Read, limit: usize, to: &SyncSender<io::Result<Chunk>>) -> io::Result<()> {
    let mut input = BufReader::with_capacity(BUFFER, input);
    let mut line = Vec::new();
    loop {
        let mut chunk = Chunk::default();
        let mut more = Ok(true);
        // Lines that are buffered whole go together; a line that has arrived never waits for the next one.
        while matches!(more, Ok(true)) && (chunk.lines.is_empty() || input.buffer().contains(&b'\n')) {
            more = read_line(&mut input, limit, &mut line, &mut chunk);
        }
        chunk.arrived = Some(Instant::now());
        if to.send(Ok(chunk)).is_err() || !more? {
            return Ok(());
        }
    }
}

/// Adds the next line to the chunk, also the one that an error cuts off. Returns false at the end of the input. Holds at
/// most the limit and a line ending.
fn read_line(input: &mut impl BufRead, limit: usize, line: &mut Vec<u8>, chunk: &mut Chunk) -> io::Result<bool> {
    line.clear();
    let mut read = input
        .by_ref()
        .take(limit as u64 + 2)
        .read_until(b'\n', line)
        .map(|_| ());
    chunk.bytes += line.len() as u64;
    if line.is_empty() {
        return read.map(|()| false);
    }
    let mut text = &line[..];
    if let Some(whole) = text.strip_suffix(b"\n") {
        text = whole.strip_suffix(b"\r").unwrap_or(whole);
    } else if read.is_ok() && text.len() == limit + 2 {
        read = input.skip_until(b'\n').map(|skipped| chunk.bytes += skipped as u64);
    } else {
        text = text.strip_suffix(b"\r").unwrap_or(text);
    }
    if text.len() > limit {
        chunk.truncated += 1;
        text = &text[..char_boundary(text, limit)];
    }
    let text = String::from_utf8_lossy(text);
    chunk.invalid_utf8 += u64::from(matches!(text, Cow::Owned(_)));
    chunk.lines.push(Arc::from(text));
    read.map(|()| true)
}

/// The start of the character that contains the byte at `at`.
fn char_boundary(bytes: &[u8], at: usize) -> usize {
    let is_continuation = |at: usize| bytes[at] & 0b1100_0000 == 0b1000_0000;
    // No character is longer than 4 bytes; a longer run of continuation bytes is invalid and may be cut anywhere.
    (at.saturating_sub(3)..=at)
        .rev()
        .find(|at| !is_continuation(*at))
        .unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `bytes` in pieces of every size, which must make no difference. Returns the lines, and how many were truncated
    /// and invalid.
    fn split(bytes: &[u8], limit: usize) -> (Vec<String>, u64, u64) {
        let in_pieces = |size: usize| {
            let mut input = BufReader::with_capacity(size, bytes);
            let (mut line, mut chunk) = (Vec::new(), Chunk::default());
            while read_line(&mut input, limit, &mut line, &mut chunk).expect("a slice can be read") {
                assert!(line.len() <= limit + 2, "holds too much");
            }
            assert_eq!(chunk.bytes, bytes.len() as u64);
            let lines: Vec<String> = chunk.lines.iter().map(|line| line.to_string()).collect();
            (lines, chunk.truncated, chunk.invalid_utf8)
        };
        let whole = in_pieces(bytes.len().max(1));
        for size in 1..=bytes.len() {
            assert_eq!(in_pieces(size), whole, "in pieces of {size}");
        }
        whole
    }

    #[test]
    fn lines_end_with_lf_crlf_or_the_input() {
        let (lines, truncated, invalid_utf8) = split(b"one\ntwo\r\n\nlast", 100);
        assert_eq!(lines, ["one", "two", "", "last"]);
        assert_eq!((truncated, invalid_utf8), (0, 0));
        assert_eq!(split(b"", 100).0, Vec::<String>::new());
        assert_eq!(split(b"\n", 100).0, [""]);
        assert_eq!(split(b"a\rb\r", 100).0, ["a\rb"]);
    }

    #[test]
    fn a_line_of_exactly_the_limit_stays_whole() {
        assert_eq!(split(b"abcd\nabcd\r\nabcd", 4), (vec!["abcd".into(); 3], 0, 0));
        assert_eq!(split(b"abcde\nabcde\r\nab", 4).1, 2);
        assert_eq!(split(b"abcd\rx\nabcdef", 4).1, 2);
    }

    #[test]
    fn a_cut_never_splits_a_character() {
        let cuts = ["a", "a", "aé", "aé", "aé", "aé寿", "aé寿x"];
        for (limit, cut) in (1..).zip(cuts) {
            let (lines, truncated, invalid_utf8) = split("aé寿xx\nb".as_bytes(), limit);
            assert_eq!(lines, [cut, "b"], "limit {limit}");
            assert_eq!((truncated, invalid_utf8), (1, 0));
        }
    }

    #[test]
    fn invalid_utf8_is_replaced_and_counted_once_per_line() {
        let (lines, truncated, invalid_utf8) = split(b"good\n\xff\xfe bad\n\x80\x80\x80\x80\x80\x80\n", 4);
        assert_eq!(lines[0], "good");
        assert_eq!(lines[1], "\u{fffd}\u{fffd} b");
        assert_eq!(lines[2], "\u{fffd}".repeat(4));
        assert_eq!((truncated, invalid_utf8), (2, 2));
    }
}

//! Bytes to lines, in bounded memory.

use std::borrow::Cow;
use std::sync::Arc;

/// What was odd about the lines so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Oddities {
    /// Lines longer than the limit, cut at a character boundary.
    pub(crate) truncated: u64,
    /// Lines with invalid UTF-8, which was replaced by U+FFFD.
    pub(crate) invalid_utf8: u64,
}

/// Splits a byte stream into lines. It never holds more of a line than the limit and one byte.
#[derive(Debug)]
pub(crate) struct LineSplitter {
    limit: usize,
    unfinished: Vec<u8>,
    pub(crate) oddities: Oddities,
}

impl LineSplitter {
    /// `limit` is the longest line, in bytes and without its end, that stays whole.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            unfinished: Vec::new(),
            oddities: Oddities::default(),
        }
    }

    /// Takes the next bytes of the stream and appends the lines that end in them.
    pub(crate) fn feed(&mut self, bytes: &[u8], lines: &mut Vec<Arc<str>>) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            match piece.strip_suffix(b"\n") {
                Some(whole) if self.unfinished.is_empty() => lines.push(self.line(whole)),
                Some(end) => {
                    self.keep(end);
                    lines.push(self.finish_line());
                }
                None => self.keep(piece),
            }
        }
    }

    /// Ends the stream: what follows the last line end is a line too, unless it is empty.
    pub(crate) fn finish(&mut self) -> Option<Arc<str>> {
        (!self.unfinished.is_empty()).then(|| self.finish_line())
    }

    fn finish_line(&mut self) -> Arc<str> {
        let mut unfinished = std::mem::take(&mut self.unfinished);
        let line = self.line(&unfinished);
        // The buffer is used again.
        unfinished.clear();
        self.unfinished = unfinished;
        line
    }

    /// Keeps one byte more than the limit: it tells whether the line is too long, and where a character begins.
    fn keep(&mut self, piece: &[u8]) {
        let room = self.limit + 1 - self.unfinished.len();
        self.unfinished.extend_from_slice(&piece[..piece.len().min(room)]);
    }

    fn line(&mut self, bytes: &[u8]) -> Arc<str> {
        let mut bytes = bytes;
        if bytes.len() <= self.limit + 1 {
            bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        }
        if bytes.len() > self.limit {
            self.oddities.truncated += 1;
            bytes = &bytes[..character_boundary(bytes, self.limit)];
        }
        let text = String::from_utf8_lossy(bytes);
        self.oddities.invalid_utf8 += u64::from(matches!(text, Cow::Owned(_)));
        Arc::from(text)
    }
}

/// The start of the character that the byte at `at` belongs to.
fn character_boundary(bytes: &[u8], at: usize) -> usize {
    let continues = |at: usize| bytes[at] & 0b1100_0000 == 0b1000_0000;
    // No character is longer than 4 bytes; a longer run of continuation bytes is no UTF-8 and may be cut anywhere.
    let lowest = at.saturating_sub(3);
    (lowest..=at).rev().find(|at| !continues(*at)).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `bytes` in pieces of every size, which must make no difference.
    fn split(bytes: &[u8], limit: usize) -> (Vec<String>, Oddities) {
        let in_pieces = |size: usize| {
            let mut splitter = LineSplitter::new(limit);
            let mut lines = Vec::new();
            for piece in bytes.chunks(size) {
                splitter.feed(piece, &mut lines);
                assert!(splitter.unfinished.len() <= limit + 1, "holds too much");
            }
            lines.extend(splitter.finish());
            let lines: Vec<String> = lines.iter().map(|line| line.to_string()).collect();
            (lines, splitter.oddities)
        };
        let whole = in_pieces(bytes.len().max(1));
        for size in 1..=bytes.len() {
            assert_eq!(in_pieces(size), whole, "in pieces of {size}");
        }
        whole
    }

    fn oddities(truncated: u64, invalid_utf8: u64) -> Oddities {
        Oddities {
            truncated,
            invalid_utf8,
        }
    }

    #[test]
    fn every_line_end_and_no_line_end() {
        let (lines, odd) = split(b"one\ntwo\r\n\nlast", 100);
        assert_eq!(lines, ["one", "two", "", "last"]);
        assert_eq!(odd, oddities(0, 0));
        assert_eq!(split(b"", 100).0, Vec::<String>::new());
        assert_eq!(split(b"\n", 100).0, [""]);
        assert_eq!(split(b"a\rb\r", 100).0, ["a\rb"]);
    }

    #[test]
    fn a_line_of_exactly_the_limit_stays_whole() {
        assert_eq!(
            split(b"abcd\nabcd\r\nabcd", 4),
            (vec!["abcd".into(); 3], oddities(0, 0))
        );
        assert_eq!(split(b"abcde\nabcde\r\nab", 4).1, oddities(2, 0));
    }

    #[test]
    fn a_cut_never_splits_a_character() {
        let cuts = ["a", "a", "aé", "aé", "aé", "aé寿", "aé寿x"];
        for (limit, cut) in (1..).zip(cuts) {
            let (lines, odd) = split("aé寿xx\nb".as_bytes(), limit);
            assert_eq!(lines, [cut, "b"], "limit {limit}");
            assert_eq!(odd, oddities(1, 0));
        }
    }

    #[test]
    fn invalid_utf8_is_replaced_and_counted_once_a_line() {
        let (lines, odd) = split(b"good\n\xff\xfe bad\n\x80\x80\x80\x80\x80\x80\n", 4);
        assert_eq!(lines[0], "good");
        assert_eq!(lines[1], "\u{fffd}\u{fffd} b");
        assert_eq!(lines[2], "\u{fffd}".repeat(4));
        assert_eq!(odd, oddities(2, 2));
    }
}

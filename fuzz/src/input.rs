//! Decodes bytes into choices. The encoding is short, so that one mutation changes one choice.

use std::ops::RangeInclusive;

pub(crate) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    pub(crate) fn one_of<T: Copy>(&mut self, options: &[T]) -> Option<T> {
        Some(options[usize::from(self.byte()?) % options.len()])
    }

    /// A sequence number, at least 1. The lowest and the highest take one byte, others nine.
    pub(crate) fn seq(&mut self) -> Option<u64> {
        Some(match self.byte()? {
            0 => {
                let (number, rest) = self.0.split_first_chunk()?;
                self.0 = rest;
                u64::from_le_bytes(*number).max(1)
            }
            low @ 1..128 => u64::from(low),
            high => u64::MAX - u64::from(u8::MAX - high),
        })
    }

    /// A range of sequence numbers that is not empty.
    pub(crate) fn seqs(&mut self) -> Option<RangeInclusive<u64>> {
        let (one, other) = (self.seq()?, self.seq()?);
        Some(one.min(other)..=one.max(other))
    }

    /// A text: a byte for its length, then that many bytes or whatever is left.
    pub(crate) fn text(&mut self) -> Option<String> {
        let length = usize::from(self.byte()?).min(self.0.len());
        let (text, rest) = self.0.split_at(length);
        self.0 = rest;
        Some(String::from_utf8_lossy(text).into_owned())
    }
}

//! Plain values of several words that carry their own checksum, so that a torn read shows.

/// Who published, his how manieth it is, and a seal over both in every further word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sealed {
    publisher: u64,
    number: u64,
    seals: [u64; 5],
}

fn seal(publisher: u64, number: u64, word: u64) -> u64 {
    (publisher << 48 ^ number)
        .wrapping_add(word)
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .rotate_left(word as u32)
}

impl Sealed {
    pub(crate) fn new(publisher: u64, number: u64) -> Self {
        Self {
            publisher,
            number,
            seals: std::array::from_fn(|word| seal(publisher, number, word as u64)),
        }
    }

    /// Publisher and number, once every seal has been checked.
    #[track_caller]
    pub(crate) fn open(&self) -> (u64, u64) {
        assert_eq!(*self, Self::new(self.publisher, self.number), "a torn or stale value");
        (self.publisher, self.number)
    }

    /// Both parts in one word.
    pub(crate) fn open_as_word(&self) -> u64 {
        let (publisher, number) = self.open();
        publisher << 48 | number
    }
}

//! Values that identify their publisher and reveal torn reads.

/// A value that carries its publisher and its ordinal among that publisher's values.
pub trait Identified: Clone + Send + Sync + 'static {
    /// Creates value `number` of `publisher`.
    fn identified(publisher: u64, number: u64) -> Self;

    /// Returns publisher and number. Panics if the value is damaged.
    fn identity(&self) -> (u64, u64);
}

impl Identified for Sealed {
    fn identified(publisher: u64, number: u64) -> Self {
        Self::new(publisher, number)
    }

    fn identity(&self) -> (u64, u64) {
        self.open()
    }
}

impl Identified for String {
    fn identified(publisher: u64, number: u64) -> Self {
        format!("{publisher}:{number}:{}", "x".repeat((number % 50) as usize))
    }

    fn identity(&self) -> (u64, u64) {
        let mut parts = self.split(':').map(|part| part.parse::<u64>());
        let (Some(Ok(publisher)), Some(Ok(number))) = (parts.next(), parts.next()) else {
            panic!("a damaged string: {self:?}");
        };
        assert_eq!(*self, Self::identified(publisher, number), "a damaged string");
        (publisher, number)
    }
}

/// Seven words without heap memory: publisher, number, and a checksum of both in each further word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sealed {
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
    /// Creates value `number` of `publisher`.
    pub fn new(publisher: u64, number: u64) -> Self {
        Self {
            publisher,
            number,
            seals: std::array::from_fn(|word| seal(publisher, number, word as u64)),
        }
    }

    /// Returns publisher and number. Panics if a checksum is wrong.
    #[track_caller]
    pub fn open(&self) -> (u64, u64) {
        assert_eq!(*self, Self::new(self.publisher, self.number), "a torn or stale value");
        (self.publisher, self.number)
    }
}

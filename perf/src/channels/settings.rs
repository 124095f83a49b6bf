//! The message and the sizes that all channel benchmarks share.

/// The message of most benches: 32 bytes of plain data.
pub type Message = [u64; 4];

/// Every channel holds this many messages.
pub const CAPACITY: usize = 1024;

/// A paced publisher sends this many, half the capacity, and waits until every subscriber has them.
pub const BURST: u64 = CAPACITY as u64 / 2;

/// The size of batches, published or received.
pub const BATCH: u64 = 64;

/// The message with this number, to compare received ones with.
#[inline]
pub fn message(number: u64) -> Message {
    [number, 1, 2, 3]
}

/// The sum of `count` numbers from `first`, to check that none was lost.
pub fn sum_of_numbers(first: u64, count: u64) -> u64 {
    (first..first + count).fold(0, u64::wrapping_add)
}

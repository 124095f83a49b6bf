//! The payloads. Each carries a number, so that the receiving end can check order and loss.

use std::sync::Arc;

use super::settings::{Message, message};

/// Something to publish.
pub trait Payload: Clone + Send + Sync + 'static {
    /// Its name in the ids of the benches.
    const NAME: &'static str;

    /// A fresh payload with this number.
    fn make(number: u64) -> Self;

    /// The number it was made with.
    fn number(&self) -> u64;
}

impl Payload for Message {
    const NAME: &'static str = "u64x4";

    #[inline]
    fn make(number: u64) -> Self {
        message(number)
    }

    #[inline]
    fn number(&self) -> u64 {
        self[0]
    }
}

/// A payload of several cache lines.
impl Payload for [u64; 32] {
    const NAME: &'static str = "u64x32";

    #[inline]
    fn make(number: u64) -> Self {
        let mut payload = [1; 32];
        payload[0] = number;
        payload
    }

    #[inline]
    fn number(&self) -> u64 {
        self[0]
    }
}

/// Each is a new allocation, as for a new event.
impl Payload for Arc<Message> {
    const NAME: &'static str = "arc";

    #[inline]
    fn make(number: u64) -> Self {
        Arc::new(message(number))
    }

    #[inline]
    fn number(&self) -> u64 {
        self[0]
    }
}

/// A typical event: some plain fields and an owned text.
#[derive(Clone, Debug)]
pub struct Event {
    number: u64,
    kind: u32,
    text: String,
}

const TEXT: &str = "agent 7f3a moved to node eu-west-2b, 3 tasks";

impl Payload for Event {
    const NAME: &'static str = "string";

    #[inline]
    fn make(number: u64) -> Self {
        Self {
            number,
            kind: 7,
            text: TEXT.to_owned(),
        }
    }

    #[inline]
    fn number(&self) -> u64 {
        debug_assert!(self.kind == 7 && self.text == TEXT);
        self.number
    }
}

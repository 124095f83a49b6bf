//! What a doorbell says: pointers to events, in the payload of a notification.
//!
//! ```text
//! payload = pointer *( U+001E pointer ) | "*"
//! pointer = stream key ":" number [ "-" number ]
//! ```
//!
//! A pointer is read from the right, since keys may contain colons; no key contains U+001E. `*` asks for a sweep. Anybody who
//! can connect to the database can ring, so a payload is a hint: it is checked against the store before anything moves.

use std::ops::RangeInclusive;

use crate::event::check_stream_key;
use crate::listen::MAX_PAYLOAD_BYTES;

/// Parts the pointers of one payload.
const SEPARATOR: char = '\u{1e}';

/// Asks whoever hears it to look for what changed, everywhere.
pub(crate) const SWEEP_REQUEST: &str = "*";

/// Some events of one stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct StreamRange<'a> {
    pub(crate) stream_key: &'a str,
    pub(crate) seqs: RangeInclusive<u64>,
}

/// The payload of a doorbell for one event, as [`DistributedBus`](super::DistributedBus) hears it: `key:seq`.
///
/// To ring from SQL: `SELECT pg_notify('doorbell', 'agent-1:7')`, or the function `ring` of the store's schema.
///
/// ```
/// assert_eq!(doorbell::bus::notification_payload("repo:doorbell", 7), "repo:doorbell:7");
/// ```
#[must_use]
pub fn notification_payload(stream_key: &str, seq: u64) -> String {
    let mut payload = String::new();
    write_range(&mut payload, stream_key, &(seq..=seq));
    payload
}

/// The pointers of a payload, and how many parts of it were not pointers.
pub(crate) fn parse(payload: &str) -> (Vec<StreamRange<'_>>, usize) {
    let mut pointers = Vec::new();
    let mut bad = 0;
    for part in payload.split(SEPARATOR) {
        match parse_range(part) {
            Some(pointer) => pointers.push(pointer),
            None => bad += 1,
        }
    }
    (pointers, bad)
}

fn parse_range(part: &str) -> Option<StreamRange<'_>> {
    let (stream_key, seqs) = part.rsplit_once(':')?;
    check_stream_key(stream_key).ok()?;
    let (first, last) = seqs.split_once('-').unwrap_or((seqs, seqs));
    let (first, last) = (parse_seq(first)?, parse_seq(last)?);
    (first <= last).then_some(StreamRange {
        stream_key,
        seqs: first..=last,
    })
}

/// Digits only: `parse` alone would also take a sign.
fn parse_seq(text: &str) -> Option<u64> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().filter(|&seq| seq > 0)
}

fn write_range(payload: &mut String, stream_key: &str, seqs: &RangeInclusive<u64>) {
    use std::fmt::Write as _;
    let written = if seqs.start() == seqs.end() {
        write!(payload, "{stream_key}:{}", seqs.end())
    } else {
        write!(payload, "{stream_key}:{}-{}", seqs.start(), seqs.end())
    };
    written.expect("a string takes whatever is written");
}

/// Packs pointers into as few payloads as they need.
pub(crate) fn pack<'a>(pointers: impl IntoIterator<Item = (&'a str, RangeInclusive<u64>)>) -> Vec<String> {
    let mut payloads = Vec::<String>::new();
    let mut pointer = String::new();
    for (stream_key, seqs) in pointers {
        pointer.clear();
        write_range(&mut pointer, stream_key, &seqs);
        match payloads.last_mut() {
            Some(payload) if payload.len() + SEPARATOR.len_utf8() + pointer.len() <= MAX_PAYLOAD_BYTES => {
                payload.push(SEPARATOR);
                payload.push_str(&pointer);
            }
            _ => payloads.push(pointer.clone()),
        }
    }
    payloads
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::store::MAX_STREAM_KEY_BYTES;

    #[test]
    fn a_key_may_look_like_anything() {
        for key in ["a", "repo:foo:bar", "7-9:3", "o'\"", "line\nbreak", "🔔", "a:1-2", " "] {
            let payload = notification_payload(key, 12);
            assert_eq!(
                parse(&payload),
                (
                    vec![StreamRange {
                        stream_key: key,
                        seqs: 12..=12
                    }],
                    0
                )
            );
        }
    }

    #[test]
    fn what_is_no_pointer_is_counted() {
        for payload in [
            "",
            ":",
            "a",
            "a:",
            ":1",
            "a:0",
            "a:-1",
            "a:+1",
            "a:1-",
            "a:2-1",
            "a:1-2-3",
            "a:1 ",
            "a:99999999999999999999",
            "*",
            "a\0:1",
        ] {
            assert_eq!(parse(payload), (vec![], 1), "{payload:?}");
        }
        assert_eq!(parse("a:1\u{1e}\u{1e}b:2-3").1, 1);
        assert_eq!(
            parse(&format!("{}:1", "k".repeat(MAX_STREAM_KEY_BYTES + 1))),
            (vec![], 1)
        );
    }

    #[test]
    fn the_widest_pointer_fits() {
        let key = "k".repeat(MAX_STREAM_KEY_BYTES);
        let payloads = pack((0..100).map(|_| (key.as_str(), u64::MAX - 1..=u64::MAX)));
        assert!(payloads.iter().all(|payload| payload.len() <= MAX_PAYLOAD_BYTES));
        assert_eq!(
            payloads.iter().map(|payload| parse(payload).0.len()).sum::<usize>(),
            100
        );
    }

    proptest! {
        #[test]
        fn any_payload_is_read_without_a_panic(payload in any::<String>()) {
            let (pointers, bad) = parse(&payload);
            prop_assert_eq!(pointers.len() + bad, payload.split(SEPARATOR).count());
        }

        #[test]
        fn what_is_packed_is_parsed(
            pointers in prop::collection::vec(("[^\0\u{1e}]{1,120}", 1..=u64::MAX, 0..1000_u64), 0..200)
        ) {
            let pointers: Vec<_> = pointers
                .into_iter()
                .map(|(key, first, more)| (key, first..=first.saturating_add(more)))
                .collect();
            let payloads = pack(pointers.iter().map(|(key, seqs)| (key.as_str(), seqs.clone())));
            let mut back = Vec::new();
            for payload in &payloads {
                prop_assert!(payload.len() <= MAX_PAYLOAD_BYTES);
                let (parsed, bad) = parse(payload);
                prop_assert_eq!(bad, 0);
                back.extend(parsed.into_iter().map(|pointer| (pointer.stream_key.to_owned(), pointer.seqs)));
            }
            prop_assert_eq!(back, pointers);
        }
    }
}

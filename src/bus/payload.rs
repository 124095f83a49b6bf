//! The payload of a notification: ranges of events.
//!
//! ```text
//! payload = range *( U+001E range ) | "*"
//! range   = stream key ":" number [ "-" number ]
//! ```
//!
//! A range is parsed from the right, because keys may contain colons. No key contains U+001E. The payload `*` requests a sweep.
//! Every client of the database can send notifications, so a payload is only a hint: it is checked against the store before
//! anything is delivered.

use std::ops::RangeInclusive;

use crate::event::check_stream_key;
use crate::listen::MAX_PAYLOAD_BYTES;

/// Separates the ranges of a payload.
const SEPARATOR: char = '\u{1e}';

/// The payload that requests a sweep.
pub(crate) const SWEEP_REQUEST: &str = "*";

/// A range of events of one stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct StreamRange<'a> {
    pub(crate) stream_key: &'a str,
    pub(crate) seqs: RangeInclusive<u64>,
}

/// Returns the payload of a notification for one event, as [`DistributedBus`](super::DistributedBus) parses it: `key:seq`.
///
/// To notify from SQL, call `SELECT pg_notify('doorbell', 'agent-1:7')`, or the function `notify_events` of the store's schema.
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

/// Parses a payload. Returns its ranges, and the number of parts that are not ranges.
pub(crate) fn parse(payload: &str) -> (Vec<StreamRange<'_>>, usize) {
    let mut ranges = Vec::new();
    let mut invalid = 0;
    for part in payload.split(SEPARATOR) {
        match parse_range(part) {
            Some(range) => ranges.push(range),
            None => invalid += 1,
        }
    }
    (ranges, invalid)
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

/// Accepts digits only: `str::parse` alone would also accept a sign.
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
    written.expect("writing to a string never fails");
}

/// Packs ranges into as few payloads as possible, in order.
pub(crate) fn pack<'a>(ranges: impl IntoIterator<Item = (&'a str, RangeInclusive<u64>)>) -> Vec<String> {
    let mut payloads = Vec::<String>::new();
    let mut range = String::new();
    for (stream_key, seqs) in ranges {
        range.clear();
        write_range(&mut range, stream_key, &seqs);
        match payloads.last_mut() {
            Some(payload) if payload.len() + SEPARATOR.len_utf8() + range.len() <= MAX_PAYLOAD_BYTES => {
                payload.push(SEPARATOR);
                payload.push_str(&range);
            }
            _ => payloads.push(range.clone()),
        }
    }
    payloads
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::event::MAX_STREAM_KEY_BYTES;

    #[test]
    fn any_key_survives_a_round_trip() {
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
    fn invalid_parts_are_counted() {
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
    fn the_longest_range_fits_a_payload() {
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
        fn parsing_any_payload_does_not_panic(payload in any::<String>()) {
            let (ranges, invalid) = parse(&payload);
            prop_assert_eq!(ranges.len() + invalid, payload.split(SEPARATOR).count());
        }

        #[test]
        fn packed_ranges_are_parsed_back(
            ranges in prop::collection::vec(("[^\0\u{1e}]{1,120}", 1..=u64::MAX, 0..1000_u64), 0..200)
        ) {
            let ranges: Vec<_> = ranges
                .into_iter()
                .map(|(key, first, more)| (key, first..=first.saturating_add(more)))
                .collect();
            let payloads = pack(ranges.iter().map(|(key, seqs)| (key.as_str(), seqs.clone())));
            let mut unpacked = Vec::new();
            for payload in &payloads {
                prop_assert!(payload.len() <= MAX_PAYLOAD_BYTES);
                let (parsed, invalid) = parse(payload);
                prop_assert_eq!(invalid, 0);
                unpacked.extend(parsed.into_iter().map(|range| (range.stream_key.to_owned(), range.seqs)));
            }
            prop_assert_eq!(unpacked, ranges);
        }
    }
}

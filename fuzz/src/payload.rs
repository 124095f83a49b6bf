//! Parsing of notification payloads, which anyone who can connect to the database can forge.

use std::ops::RangeInclusive;

use doorbell::fuzzing::{pack_payloads, parse_payload};
use doorbell::store::check_stream_key;

use crate::planted::is_planted;
use crate::reference_parser;

/// Any payload is parsed as the grammar says, and the ranges parsed from it survive packing and parsing.
pub fn check(data: &[u8]) {
    let payload = String::from_utf8_lossy(data);
    let (ranges, invalid) = parse(&payload);

    let plain = ranges
        .iter()
        .map(|(key, seqs)| (key.as_bytes(), *seqs.start(), *seqs.end()));
    assert_eq!((plain.collect(), invalid), reference_parser::parse(payload.as_bytes()));
    for (key, seqs) in &ranges {
        assert_eq!(check_stream_key(key), Ok(()));
        assert!(1 <= *seqs.start() && seqs.start() <= seqs.end());
    }

    let payloads = pack_payloads(ranges.iter().cloned());
    let mut reparsed = Vec::new();
    for payload in &payloads {
        let (ranges, invalid) = parse_payload(payload);
        assert_eq!(invalid, 0, "{payload:?}");
        reparsed.extend(ranges);
    }
    assert_eq!(reparsed, ranges);
}

fn parse(payload: &str) -> (Vec<(&str, RangeInclusive<u64>)>, usize) {
    let (mut ranges, invalid) = parse_payload(payload);
    if is_planted() {
        ranges.truncate(2);
    }
    (ranges, invalid)
}

//! Packing of stream ranges into notification payloads.

use std::ops::RangeInclusive;

use doorbell::bus::notification_payload;
use doorbell::fuzzing::{pack_payloads, parse_payload};
use doorbell::listen::MAX_PAYLOAD_BYTES;
use doorbell::store::{MAX_STREAM_KEY_BYTES, check_stream_key};

use crate::input::Input;
use crate::planted::is_planted;

/// Packed ranges are parsed back, every payload fits into a NOTIFY, and no range starts a payload if it fits into the previous one.
pub fn check(data: &[u8]) {
    let ranges = read(&mut Input::new(data));
    let payloads = pack_payloads(ranges.iter().map(|(key, seqs)| (key.as_str(), seqs.clone())));

    let limit = if is_planted() { 2_000 } else { MAX_PAYLOAD_BYTES };
    let mut reparsed = Vec::new();
    for payload in &payloads {
        assert!(payload.len() <= limit, "{} bytes", payload.len());
        let (ranges, invalid) = parse_payload(payload);
        assert_eq!(invalid, 0, "{payload:?}");
        reparsed.extend(ranges);
    }
    let reparsed = reparsed.iter().map(|(key, seqs)| (*key, seqs));
    assert!(reparsed.eq(ranges.iter().map(|(key, seqs)| (key.as_str(), seqs))));

    for two in payloads.windows(2) {
        let next = two[1].split('\u{1e}').next().expect("`split` yields at least one part");
        assert!(two[0].len() + 1 + next.len() > MAX_PAYLOAD_BYTES);
    }
    for (key, seqs) in &ranges {
        let one = notification_payload(key, *seqs.start());
        assert_eq!(pack_payloads([(key.as_str(), *seqs.start()..=*seqs.start())]), [one]);
    }
}

fn read(input: &mut Input<'_>) -> Vec<(String, RangeInclusive<u64>)> {
    let mut ranges = Vec::new();
    while let Some((text, times, seqs)) = input.text().and_then(|text| Some((text, input.byte()?, input.seqs()?))) {
        let mut key = text.repeat(usize::from(times));
        key.truncate(key.floor_char_boundary(MAX_STREAM_KEY_BYTES));
        if check_stream_key(&key).is_ok() {
            ranges.push((key, seqs));
        }
    }
    ranges
}

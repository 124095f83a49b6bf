//! Payloads as this process makes them.

use std::ops::RangeInclusive;

use crate::bus::payload::{MAX_PAYLOAD_BYTES, notification_payload, pack, parse};
use crate::input::Input;
use crate::planted::is_planted;
use crate::store::{MAX_STREAM_KEY_BYTES, check_stream_key};

/// What is packed is parsed, no payload is too long for Postgres, and none is sent that would fit into the one before.
pub fn check(data: &[u8]) {
    let pointers = read(&mut Input::new(data));
    let payloads = pack(pointers.iter().map(|(key, seqs)| (key.as_str(), seqs.clone())));

    let most = if is_planted() { 2_000 } else { MAX_PAYLOAD_BYTES };
    let mut parsed = Vec::new();
    for payload in &payloads {
        assert!(payload.len() <= most, "{} bytes", payload.len());
        let (pointers, bad) = parse(payload);
        assert_eq!(bad, 0, "{payload:?}");
        parsed.extend(pointers);
    }
    let parsed = parsed.iter().map(|pointer| (pointer.stream_key, &pointer.seqs));
    assert!(parsed.eq(pointers.iter().map(|(key, seqs)| (key.as_str(), seqs))));

    for two in payloads.windows(2) {
        let next = two[1].split('\u{1e}').next().expect("split gives a part at least");
        assert!(two[0].len() + 1 + next.len() > MAX_PAYLOAD_BYTES);
    }
    for (key, seqs) in &pointers {
        let one = notification_payload(key, *seqs.start());
        assert_eq!(pack([(key.as_str(), *seqs.start()..=*seqs.start())]), [one]);
    }
}

fn read(input: &mut Input<'_>) -> Vec<(String, RangeInclusive<u64>)> {
    let mut pointers = Vec::new();
    while let Some((text, times, seqs)) = input.text().and_then(|text| Some((text, input.byte()?, input.seqs()?))) {
        let mut key = text.repeat(usize::from(times));
        key.truncate(key.floor_char_boundary(MAX_STREAM_KEY_BYTES));
        if check_stream_key(&key).is_ok() {
            pointers.push((key, seqs));
        }
    }
    pointers
}

//! Payloads of doorbells, which anybody who may connect can forge.

use crate::bus::payload::{StreamRange, pack, parse};
use crate::planted::is_planted;
use crate::spelling;
use crate::store::check_stream_key;

/// A payload is read as its grammar says, whatever is in it, and what was read can be packed and read again.
pub fn check(data: &[u8]) {
    let payload = String::from_utf8_lossy(data);
    let (pointers, bad) = heard(&payload);

    let spelled: Vec<_> = pointers.iter().map(spelled).collect();
    assert_eq!((spelled, bad), spelling::read(payload.as_bytes()));
    for pointer in &pointers {
        assert_eq!(check_stream_key(pointer.stream_key), Ok(()));
        assert!(1 <= *pointer.seqs.start() && pointer.seqs.start() <= pointer.seqs.end());
    }

    let payloads = pack(
        pointers
            .iter()
            .map(|pointer| (pointer.stream_key, pointer.seqs.clone())),
    );
    let mut again = Vec::new();
    for payload in &payloads {
        let (pointers, bad) = parse(payload);
        assert_eq!(bad, 0, "{payload:?}");
        again.extend(pointers);
    }
    assert_eq!(again, pointers);
}

fn spelled<'a>(pointer: &StreamRange<'a>) -> spelling::Spelled<'a> {
    (
        pointer.stream_key.as_bytes(),
        *pointer.seqs.start(),
        *pointer.seqs.end(),
    )
}

fn heard(payload: &str) -> (Vec<StreamRange<'_>>, usize) {
    let (mut pointers, bad) = parse(payload);
    if is_planted() {
        pointers.truncate(2);
    }
    (pointers, bad)
}

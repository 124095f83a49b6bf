//! A second reading of payloads, by the grammar at the head of `pointer.rs` alone: over bytes, and from the right.

/// A pointer's stream key, and the first and last number.
pub(crate) type Spelled<'a> = (&'a [u8], u64, u64);

/// The pointers of a payload, and how many parts of it are none.
pub(crate) fn read(payload: &[u8]) -> (Vec<Spelled<'_>>, usize) {
    let parts: Vec<_> = payload.split(|&byte| byte == 0x1e).map(pointer).collect();
    let bad = parts.iter().filter(|part| part.is_none()).count();
    (parts.into_iter().flatten().collect(), bad)
}

fn pointer(part: &[u8]) -> Option<Spelled<'_>> {
    let (rest, last) = number(part)?;
    let (rest, first) = match rest.split_last()? {
        (b'-', rest) => number(rest)?,
        _ => (rest, last),
    };
    let (colon, key) = rest.split_last()?;
    let is_key = (1..=512).contains(&key.len()) && !key.contains(&0);
    (*colon == b':' && is_key && 1 <= first && first <= last).then_some((key, first, last))
}

/// The number that a text ends with, and what is before it.
fn number(text: &[u8]) -> Option<(&[u8], u64)> {
    let digits = text.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (rest, digits) = text.split_at(text.len() - digits);
    let value = |value: u64, digit: &u8| value.checked_mul(10)?.checked_add(u64::from(digit - b'0'));
    (!digits.is_empty()).then_some((rest, digits.iter().try_fold(0, value)?))
}

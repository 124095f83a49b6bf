//! A second parser of notification payloads, written from the grammar at the head of `src/bus/payload.rs` alone: it works on bytes
//! and from the right.

/// A stream key, and the first and the last sequence number.
pub(crate) type Range<'a> = (&'a [u8], u64, u64);

/// The ranges in a payload, and the number of parts that are not ranges.
pub(crate) fn parse(payload: &[u8]) -> (Vec<Range<'_>>, usize) {
    let parts: Vec<_> = payload.split(|&byte| byte == 0x1e).map(range).collect();
    let invalid = parts.iter().filter(|part| part.is_none()).count();
    (parts.into_iter().flatten().collect(), invalid)
}

fn range(part: &[u8]) -> Option<Range<'_>> {
    let (rest, last) = number(part)?;
    let (rest, first) = match rest.split_last()? {
        (b'-', rest) => number(rest)?,
        _ => (rest, last),
    };
    let (colon, key) = rest.split_last()?;
    let is_key = (1..=512).contains(&key.len()) && !key.contains(&0);
    (*colon == b':' && is_key && 1 <= first && first <= last).then_some((key, first, last))
}

/// The number at the end of a text, and what precedes it.
fn number(text: &[u8]) -> Option<(&[u8], u64)> {
    let digits = text.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (rest, digits) = text.split_at(text.len() - digits);
    let value = |value: u64, digit: &u8| value.checked_mul(10)?.checked_add(u64::from(digit - b'0'));
    (!digits.is_empty()).then_some((rest, digits.iter().try_fold(0, value)?))
}

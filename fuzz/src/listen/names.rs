//! Names of channels and payloads of notifications, as they go into SQL.

use super::channel::{ChannelName, InvalidChannel, InvalidPayload, check_payload, push_identifier, push_literal};
use crate::planted::is_planted;

/// Names that Postgres could not hold, or would cut, are refused; and whatever a text contains, the server reads it back from
/// the SQL as it was, and nothing else.
pub fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (bytes, nul) = (text.len(), text.bytes().any(|byte| byte == 0));

    let name = ChannelName::new(&text).map(|name| name.as_str().to_owned());
    assert_eq!(
        name,
        match bytes {
            0 => Err(InvalidChannel::Empty),
            64.. => Err(InvalidChannel::TooLong { bytes }),
            _ if nul => Err(InvalidChannel::Nul),
            _ => Ok(text.clone().into_owned()),
        }
    );
    assert_eq!(
        check_payload(&text),
        match bytes {
            8000.. => Err(InvalidPayload::TooLong { bytes }),
            _ if nul => Err(InvalidPayload::Nul),
            _ => Ok(()),
        }
    );

    // What comes after it may look as if it went on.
    let rest = [" ", " \"x", " 'x", " \\x"][bytes % 4];
    let mut sql = String::new();
    push_identifier(&mut sql, &text);
    if is_planted() {
        sql = sql.replace("'\"\"", "'\"");
    }
    let end = sql.len();
    sql.push_str(rest);
    assert_eq!(identifier(&sql), Some((text.clone().into_owned(), end)));

    let mut sql = String::new();
    push_literal(&mut sql, &text);
    let end = sql.len();
    sql.push_str(rest);
    assert_eq!(literal(&sql), Some((text.into_owned(), end)));
}

/// The identifier at the head of some SQL, and where it ends, as the server's lexer reads it.
fn identifier(sql: &str) -> Option<(String, usize)> {
    quoted(sql, "\"", '"', None)
}

/// The same of a literal with escapes.
fn literal(sql: &str) -> Option<(String, usize)> {
    quoted(sql, "E'", '\'', Some('\\'))
}

fn quoted(sql: &str, opening: &str, quote: char, escape: Option<char>) -> Option<(String, usize)> {
    let mut chars = sql.strip_prefix(opening)?.char_indices().peekable();
    let mut text = String::new();
    while let Some((at, c)) = chars.next() {
        if c == quote {
            // A quote that is doubled stands for itself.
            if chars.next_if(|&(_, next)| next == quote).is_none() {
                return Some((text, opening.len() + at + 1));
            }
        } else if Some(c) == escape {
            // Others would mean something else, and are never written.
            chars.next_if(|&(_, next)| Some(next) == escape)?;
        }
        text.push(c);
    }
    None
}

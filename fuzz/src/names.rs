//! Channel names and payloads, checked and quoted for SQL.

use doorbell::fuzzing::{check_channel_name, check_payload, quote_identifier, quote_literal};
use doorbell::listen::{InvalidChannel, InvalidPayload};

use crate::planted::is_planted;

/// Names and payloads that Postgres rejects or truncates are refused. Any text, once quoted, is read back unchanged by the server's
/// lexer, and the quotes end where they should.
pub fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (bytes, nul) = (text.len(), text.bytes().any(|byte| byte == 0));

    assert_eq!(
        check_channel_name(&text),
        match bytes {
            0 => Err(InvalidChannel::Empty),
            64.. => Err(InvalidChannel::TooLong { bytes }),
            _ if nul => Err(InvalidChannel::Nul),
            _ => Ok(()),
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

    // The text after the quotes may look like a continuation.
    let rest = [" ", " \"x", " 'x", " \\x"][bytes % 4];
    let mut sql = quote_identifier(&text);
    if is_planted() {
        sql = sql.replace("'\"\"", "'\"");
    }
    let end = sql.len();
    sql.push_str(rest);
    assert_eq!(identifier(&sql), Some((text.clone().into_owned(), end)));

    let mut sql = quote_literal(&text);
    let end = sql.len();
    sql.push_str(rest);
    assert_eq!(literal(&sql), Some((text.into_owned(), end)));
}

/// The identifier at the start of `sql` and the offset of its end, as the server's lexer reads it.
fn identifier(sql: &str) -> Option<(String, usize)> {
    quoted(sql, "\"", '"', None)
}

/// The same for an escape string literal.
fn literal(sql: &str) -> Option<(String, usize)> {
    quoted(sql, "E'", '\'', Some('\\'))
}

fn quoted(sql: &str, opening: &str, quote: char, escape: Option<char>) -> Option<(String, usize)> {
    let mut chars = sql.strip_prefix(opening)?.char_indices().peekable();
    let mut text = String::new();
    while let Some((at, c)) = chars.next() {
        if c == quote {
            // A doubled quote stands for one.
            if chars.next_if(|&(_, next)| next == quote).is_none() {
                return Some((text, opening.len() + at + 1));
            }
        } else if Some(c) == escape {
            // Only a doubled escape stands for itself; no other escape is ever written.
            chars.next_if(|&(_, next)| Some(next) == escape)?;
        }
        text.push(c);
    }
    None
}

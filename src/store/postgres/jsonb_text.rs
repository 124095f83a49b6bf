//! Detects JSON text that `jsonb` cannot store: Postgres has no NUL character, and refuses `\u0000`.

/// Returns `true` if JSON text contains the escape `\u0000`, as opposed to `\\u0000`, which is a backslash followed by text.
pub(crate) fn escapes_nul(json: &str) -> bool {
    let mut rest = json;
    while let Some(at) = rest.find('\\') {
        let escape = &rest[at + 1..];
        if escape.starts_with("u0000") {
            return true;
        }
        // Skip the escaped character, which is always ASCII.
        rest = escape.get(1..).unwrap_or("");
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nul_escapes_are_distinguished_from_escaped_backslashes() {
        for (text, nul) in [
            ("", false),
            ("\0", true),
            ("\\u0000", false),
            ("\\\0", true),
            ("a\\\\u0000", false),
            ("\n\0", true),
        ] {
            assert_eq!(escapes_nul(&serde_json::to_string(text).unwrap()), nul, "{text:?}");
        }
    }
}

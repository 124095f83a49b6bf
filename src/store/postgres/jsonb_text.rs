//! JSON that Postgres cannot store: it has no character NUL, and so refuses `\u0000` in `jsonb`.

/// Whether JSON contains `\u0000`, and not as the end of `\\u0000`, which is a backslash and then text.
pub(super) fn escapes_nul(json: &str) -> bool {
    let mut rest = json;
    while let Some(at) = rest.find('\\') {
        let escape = &rest[at + 1..];
        if escape.starts_with("u0000") {
            return true;
        }
        // Past the character that was escaped, which is always ASCII.
        rest = escape.get(1..).unwrap_or("");
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nul_is_found_and_what_looks_like_it_is_not() {
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

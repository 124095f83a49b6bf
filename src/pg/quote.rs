//! Quoting, for statements that cannot take parameters.

/// Appends `name` as a quoted identifier.
pub(crate) fn push_identifier(sql: &mut String, name: &str) {
    sql.push('"');
    for c in name.chars() {
        if c == '"' {
            sql.push('"');
        }
        sql.push(c);
    }
    sql.push('"');
}

/// Appends `text` as a string literal that does not depend on `standard_conforming_strings`.
pub(crate) fn push_literal(sql: &mut String, text: &str) {
    sql.push_str("E'");
    for c in text.chars() {
        if matches!(c, '\'' | '\\') {
            sql.push(c);
        }
        sql.push(c);
    }
    sql.push('\'');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_backslashes_are_doubled() {
        let mut sql = String::new();
        push_identifier(&mut sql, r#"a"b;--'"#);
        assert_eq!(sql, r#""a""b;--'""#);
        let mut sql = String::new();
        push_literal(&mut sql, r"it's \n");
        assert_eq!(sql, r"E'it''s \\n'");
    }
}

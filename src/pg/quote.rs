//! Quoting for the few statements that cannot take parameters.

/// Writes `name` as a quoted identifier.
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

/// Writes `text` as a literal that means the same whatever `standard_conforming_strings` says.
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
    fn quoting_doubles_what_would_end_the_quotes() {
        let mut sql = String::new();
        push_identifier(&mut sql, r#"a"b;--'"#);
        assert_eq!(sql, r#""a""b;--'""#);
        let mut sql = String::new();
        push_literal(&mut sql, r"it's \n");
        assert_eq!(sql, r"E'it''s \\n'");
    }
}

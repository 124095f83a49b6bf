//! Connection strings.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::template::USER;

/// Returns the URL of a database on 127.0.0.1.
pub(crate) fn of(port: u16, password: Option<&str>, database: &str) -> String {
    let password = password.map_or_else(String::new, |password| format!(":{}", encode(password)));
    format!("postgres://{USER}{password}@127.0.0.1:{port}/{}", encode(database))
}

/// Replaces the database in a URL. Returns `None` if it is not a `postgres` URL.
pub(crate) fn with_database(url: &str, database: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    if !matches!(scheme, "postgres" | "postgresql") {
        return None;
    }
    let (rest, query) = rest
        .split_once('?')
        .map_or((rest, None), |(rest, query)| (rest, Some(query)));
    let authority = rest.split('/').next()?;
    let query = query.map_or_else(String::new, |query| format!("?{query}"));
    Some(format!("{scheme}://{authority}/{}{query}", encode(database)))
}

fn encode(text: &str) -> String {
    // Unreserved characters stay readable.
    const SET: &percent_encoding::AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
    utf8_percent_encode(text, SET).to_string()
}

#[cfg(test)]
mod tests {
    use super::{of, with_database};

    #[test]
    fn passwords_and_names_are_encoded() {
        assert_eq!(of(5, None, "postgres"), "postgres://postgres@127.0.0.1:5/postgres");
        assert_eq!(
            of(5, Some("a:b@c/é"), "x y"),
            "postgres://postgres:a%3Ab%40c%2F%C3%A9@127.0.0.1:5/x%20y"
        );
    }

    #[test]
    fn the_database_of_a_url_is_replaced() {
        let replaced = |url| with_database(url, "new");
        assert_eq!(
            replaced("postgres://u:p@h:1/old?a=b").as_deref(),
            Some("postgres://u:p@h:1/new?a=b")
        );
        assert_eq!(replaced("postgresql://h").as_deref(), Some("postgresql://h/new"));
        assert_eq!(
            replaced("postgres:///old?host=/tmp").as_deref(),
            Some("postgres:///new?host=/tmp")
        );
        assert_eq!(replaced("host=localhost dbname=old"), None);
        assert_eq!(replaced("https://h/old"), None);
    }
}

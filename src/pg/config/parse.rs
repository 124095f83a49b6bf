//! Parses connection strings. Takes out the parameters that tokio-postgres does not know, and leaves the rest to it.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use super::ConfigError;
use super::connection_string::ConnectionString;
use super::ssl_mode::{Certificates, SslMode};
use crate::pg::server_error::ServerError;

/// Returns the settings, and whether they verify the server's certificate. Reads no certificate file.
#[cfg(any(test, fuzzing))]
pub(crate) fn parse_without_files(text: &str) -> Result<(tokio_postgres::Config, bool), ConfigError> {
    let mut parsed = parse(text)?;
    if let Some(mode) = parsed.mode {
        parsed.postgres.ssl_mode(mode.negotiation());
    }
    let verifies = matches!(parsed.mode, Some(SslMode::VerifyCa | SslMode::VerifyFull));
    Ok((parsed.postgres, verifies))
}

/// Parses a connection string. What it does not set stays unset.
pub(super) fn parse(text: &str) -> Result<ConnectionString, ConfigError> {
    if text.trim().is_empty() {
        return Err(ConfigError("the connection string is empty".to_owned()));
    }
    let mut extra = ExtraParameters::default();
    let rest = if text.starts_with("postgres://") || text.starts_with("postgresql://") {
        from_url(text, &mut extra)?
    } else {
        from_pairs(text, &mut extra)?
    };
    let parsed = rest.parse::<tokio_postgres::Config>();
    let mut postgres =
        parsed.map_err(|error| ConfigError(format!("malformed connection string: {}", ServerError::from(error))))?;
    if let Some(options) = extra.options {
        postgres.options(options);
    }
    Ok(ConnectionString {
        postgres,
        mode: extra.mode,
        certificates: extra.certificates,
        statement_cache_capacity: extra.statement_cache_capacity,
    })
}

/// The parameters that are not left to tokio-postgres.
#[derive(Default)]
struct ExtraParameters {
    mode: Option<SslMode>,
    certificates: Certificates,
    options: Option<String>,
    statement_cache_capacity: Option<usize>,
}

impl ExtraParameters {
    /// Takes a parameter. Returns false if it belongs to tokio-postgres; its value is then not evaluated, and need not be UTF-8.
    fn take<'v>(
        &mut self,
        key: &str,
        value: impl FnOnce() -> Result<Cow<'v, str>, ConfigError>,
    ) -> Result<bool, ConfigError> {
        match key {
            "sslmode" | "ssl-mode" => self.mode = Some(SslMode::parse(&value()?)?),
            "sslrootcert" | "ssl-root-cert" | "ssl-ca" => self.certificates.root = Some(value()?.into_owned()),
            "sslcert" | "ssl-cert" => self.certificates.client = Some(value()?.into_owned()),
            "sslkey" | "ssl-key" => self.certificates.client_key = Some(value()?.into_owned()),
            "options" => self.add_option(&value()?),
            "statement-cache-capacity" => {
                let capacity = value()?.parse();
                let capacity = capacity.map_err(|_| ConfigError("statement-cache-capacity is not a number".to_owned()));
                self.statement_cache_capacity = Some(capacity?);
            }
            _ => match key.strip_prefix("options[").and_then(|key| key.strip_suffix(']')) {
                Some(name) => self.add_option(&format!("-c {name}={}", escape(&value()?))),
                None => return Ok(false),
            },
        }
        Ok(true)
    }

    fn add_option(&mut self, option: &str) {
        let options = self.options.get_or_insert_default();
        if !options.is_empty() {
            options.push(' ');
        }
        options.push_str(option);
    }
}

/// Escapes an option value, because the server splits options at spaces.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace(' ', "\\ ")
}

fn from_url(text: &str, extra: &mut ExtraParameters) -> Result<String, ConfigError> {
    // A '?' ahead of the '@' is part of the password.
    let credentials = text.find('@').unwrap_or(0);
    let Some(start) = text[credentials..].find('?').map(|at| credentials + at) else {
        return Ok(text.to_owned());
    };
    let mut rest = text[..start].to_owned();
    let mut separator = '?';
    for parameter in text[start + 1..].split('&').filter(|parameter| !parameter.is_empty()) {
        let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        if !extra.take(&decode(key)?, || decode(value))? {
            rest.push(separator);
            rest.push_str(parameter);
            separator = '&';
        }
    }
    Ok(rest)
}

fn decode(text: &str) -> Result<Cow<'_, str>, ConfigError> {
    let not_utf8 = |_| ConfigError("a parameter of the connection string is not UTF-8".to_owned());
    percent_decode_str(text).decode_utf8().map_err(not_utf8)
}

fn from_pairs(text: &str, extra: &mut ExtraParameters) -> Result<String, ConfigError> {
    let mut rest = String::new();
    for (key, value) in pairs(text)? {
        if !extra.take(key, || Ok(Cow::Borrowed(&value)))? {
            let value = value.replace('\\', "\\\\").replace('\'', "\\'");
            rest.push_str(&format!("{key}='{value}' "));
        }
    }
    Ok(rest)
}

/// Parses `key=value` pairs. A quoted value may contain spaces, and a backslash escapes the next character.
fn pairs(text: &str) -> Result<Vec<(&str, String)>, ConfigError> {
    let malformed = |what: &str| ConfigError(format!("malformed connection string: {what}"));
    let mut pairs = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (key, after) = rest
            .split_once('=')
            .ok_or_else(|| malformed("a parameter has no value"))?;
        let key = key.trim_end();
        if key.is_empty() || key.contains(char::is_whitespace) {
            return Err(malformed("a parameter has no value"));
        }
        let mut chars = after.trim_start().chars();
        let mut value = String::new();
        let quoted = chars.as_str().starts_with('\'');
        if quoted {
            chars.next();
        }
        loop {
            match chars.next() {
                None if quoted => return Err(malformed("a quote is not closed")),
                None => break,
                Some('\'') if quoted => break,
                Some(c) if !quoted && c.is_whitespace() => break,
                Some('\\') => value.extend(chars.next()),
                Some(c) => value.push(c),
            }
        }
        pairs.push((key, value));
        rest = chars.as_str().trim_start();
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use tokio_postgres::config::{Host, SslMode};

    use super::*;
    use crate::pg::config::ListenConfig;

    fn config(text: &str) -> tokio_postgres::Config {
        let parsed = text.parse::<ListenConfig>();
        parsed.unwrap_or_else(|error| panic!("{text}: {error}")).postgres
    }

    fn error(text: &str) -> String {
        match text.parse::<ListenConfig>() {
            Err(ConfigError(what)) => what,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn parameters_of_tokio_postgres_are_passed_through() {
        let config =
            config("postgresql://us%65r:p%40ss%3F@h1:1,[::1]:2/d%62?connect_timeout=3&target_session_attrs=read-write");
        assert_eq!(config.get_user(), Some("user"));
        assert_eq!(config.get_password(), Some(&b"p@ss?"[..]));
        assert_eq!(config.get_dbname(), Some("db"));
        assert_eq!(config.get_hosts(), [Host::Tcp("h1".into()), Host::Tcp("::1".into())]);
        assert_eq!(config.get_ports(), [1, 2]);
        assert_eq!(config.get_connect_timeout().map(|timeout| timeout.as_secs()), Some(3));
    }

    #[test]
    fn a_socket_path_need_not_be_utf8() {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt as _;

        let socket = OsStr::from_bytes(b"/run/\xff");
        assert_eq!(
            config("postgres:///d?host=%2Frun%2F%ff&sslmode=disable").get_hosts(),
            [Host::Unix(socket.into())]
        );
    }

    #[test]
    fn ssl_modes_are_mapped_in_urls_and_pairs() {
        for (mode, expected) in [
            ("disable", SslMode::Disable),
            ("allow", SslMode::Prefer),
            ("prefer", SslMode::Prefer),
            ("require", SslMode::Require),
            ("verify-ca", SslMode::Require),
            ("verify-full", SslMode::Require),
        ] {
            assert_eq!(
                config(&format!("postgres://h/d?sslmode={mode}")).get_ssl_mode(),
                expected
            );
            assert_eq!(
                config(&format!("postgres://h/d?a%70plication_name=x&ssl-mode={mode}")).get_ssl_mode(),
                expected
            );
            assert_eq!(
                config(&format!("host=h sslmode = '{mode}' user=u")).get_ssl_mode(),
                expected
            );
        }
        assert_eq!(config("host=h").get_ssl_mode(), SslMode::Prefer);
        assert!(error("host=h sslmode=often").contains("often"));
    }

    #[test]
    fn a_password_may_contain_a_question_mark() {
        let config = config("postgres://u:p?w&x=y@h/d?sslmode=disable");
        assert_eq!(config.get_password(), Some(&b"p?w&x=y"[..]));
        assert_eq!(config.get_ssl_mode(), SslMode::Disable);
    }

    #[test]
    fn all_spellings_of_options_are_joined() {
        let url = "postgres://h/d?options=-c%20geqo%3Doff&options[search_path]=a%20b&statement-cache-capacity=7";
        assert_eq!(config(url).get_options(), Some("-c geqo=off -c search_path=a\\ b"));
        let pairs = r"host=h options='-c geqo=off -c search_path=a\\ b'";
        assert_eq!(config(pairs).get_options(), Some("-c geqo=off -c search_path=a\\ b"));
    }

    #[test]
    fn pairs_are_parsed_as_by_libpq() {
        let config = config(r"  host = /run/pg  user='o\'neil' password='a b\\c' dbname=d\ b port=7");
        assert_eq!(config.get_hosts(), [Host::Unix("/run/pg".into())]);
        assert_eq!(config.get_user(), Some("o'neil"));
        assert_eq!(config.get_password(), Some(&br"a b\c"[..]));
        assert_eq!(config.get_dbname(), Some("d b"));
        assert_eq!(config.get_ports(), [7]);
        assert!(
            self::config("host=h password=''")
                .get_password()
                .is_some_and(<[u8]>::is_empty)
        );
    }

    #[test]
    fn malformed_strings_are_refused() {
        for text in [
            "host",
            "=h",
            "host=h port",
            "a b=c",
            "host='h",
            "host=h colour=red",
            "postgres://h/d?colour=red",
        ] {
            error(text);
        }
        error("postgres://h/d?sslmode=%ff");
        error("postgres://h/d?sslcert=/nowhere"); // without its key
        assert!(error("postgres://h/d?sslmode=verify-ca&sslrootcert=/nowhere").contains("/nowhere"));
        assert!(error("host=h sslmode=verify-full sslrootcert=/dev/null").contains("no PEM certificate"));
    }

    mod any_text {
        use proptest::prelude::*;

        proptest! {
            /// Any text is parsed or refused without a panic.
            #[test]
            fn does_not_panic(text in "(postgres://)?[ -~]{0,40}[?&='\\\\a-c ]{0,12}\\PC{0,10}") {
                let _ = super::parse(&text); // reads no file
            }

            /// Any password survives both forms.
            #[test]
            fn keeps_its_password(password in "[^\0]{1,20}") {
                let quoted = password.replace('\\', "\\\\").replace('\'', "\\'");
                let parsed = super::config(&format!("host=h password='{quoted}' sslmode=disable"));
                prop_assert_eq!(parsed.get_password(), Some(password.as_bytes()));
                let encoded = percent_encoding::utf8_percent_encode(&password, percent_encoding::NON_ALPHANUMERIC);
                let parsed = super::config(&format!("postgres://u:{encoded}@h/d?sslmode=disable"));
                prop_assert_eq!(parsed.get_password(), Some(password.as_bytes()));
            }
        }
    }
}

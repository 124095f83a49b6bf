//! Connection strings: what tokio-postgres parses, and the parameters that it refuses.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use super::ListenConfig;
use super::tls::{Certificates, Mode};
use crate::listen::error::{ListenError, ServerError};

pub(super) fn parse(text: &str) -> Result<ListenConfig, ListenError> {
    let mut ours = Ours::default();
    let rest = if text.starts_with("postgres://") || text.starts_with("postgresql://") {
        from_url(text, &mut ours)?
    } else {
        from_pairs(text, &mut ours)?
    };
    let parsed = rest.parse::<tokio_postgres::Config>();
    let mut postgres = parsed.map_err(|error| ListenError::Config(ServerError::from(error).to_string()))?;
    // The default of both.
    let mode = ours.mode.unwrap_or(Mode::Prefer);
    postgres.ssl_mode(mode.negotiation());
    if let Some(options) = ours.options {
        postgres.options(options);
    }
    Ok(ListenConfig::new(postgres, mode.tls(&ours.certificates)?))
}

/// The parameters that are taken out.
#[derive(Default)]
struct Ours {
    mode: Option<Mode>,
    certificates: Certificates,
    options: Option<String>,
}

impl Ours {
    /// Takes the parameter; false if it is not ours.
    fn take(&mut self, key: &str, value: &str) -> Result<bool, ListenError> {
        match key {
            "sslmode" | "ssl-mode" => self.mode = Some(Mode::parse(value)?),
            "sslrootcert" | "ssl-root-cert" | "ssl-ca" => self.certificates.root = Some(value.to_owned()),
            "sslcert" | "ssl-cert" => self.certificates.client = Some(value.to_owned()),
            "sslkey" | "ssl-key" => self.certificates.client_key = Some(value.to_owned()),
            "options" => self.add_option(value),
            "statement-cache-capacity" => {}
            _ => match key.strip_prefix("options[").and_then(|key| key.strip_suffix(']')) {
                Some(name) => self.add_option(&format!("-c {name}={}", escaped(value))),
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

/// The server splits options at spaces.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace(' ', "\\ ")
}

fn from_url(text: &str, ours: &mut Ours) -> Result<String, ListenError> {
    // A '?' before the '@' belongs to the password.
    let credentials = text.find('@').unwrap_or(0);
    let Some(start) = text[credentials..].find('?').map(|at| credentials + at) else {
        return Ok(text.to_owned());
    };
    let mut rest = text[..start].to_owned();
    let mut separator = '?';
    for parameter in text[start + 1..].split('&').filter(|parameter| !parameter.is_empty()) {
        let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        if !ours.take(&decoded(key)?, &decoded(value)?)? {
            rest.push(separator);
            rest.push_str(parameter);
            separator = '&';
        }
    }
    Ok(rest)
}

fn decoded(text: &str) -> Result<Cow<'_, str>, ListenError> {
    let not_utf8 = |_| ListenError::Config("the connection string has a parameter that is not UTF-8".to_owned());
    percent_decode_str(text).decode_utf8().map_err(not_utf8)
}

fn from_pairs(text: &str, ours: &mut Ours) -> Result<String, ListenError> {
    let mut rest = String::new();
    for (key, value) in pairs(text)? {
        if !ours.take(key, &value)? {
            let value = value.replace('\\', "\\\\").replace('\'', "\\'");
            rest.push_str(&format!("{key}='{value}' "));
        }
    }
    Ok(rest)
}

/// `key=value` pairs: values in quotes may hold spaces, and a backslash takes the next character as it is.
fn pairs(text: &str) -> Result<Vec<(&str, String)>, ListenError> {
    let malformed = |what: &str| ListenError::Config(format!("the connection string is malformed: {what}"));
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

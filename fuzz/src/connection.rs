//! Connection strings.

use doorbell::fuzzing::parse_connection_string;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;

use crate::input::Input;
use crate::planted::is_planted;

/// Any text is parsed or refused without a panic. Text that tokio-postgres accepts means the same here, and a URL means the same as
/// `key=value` pairs with the same parameters.
pub fn check(data: &[u8]) {
    match data.split_first() {
        Some((0..b' ', parameters)) => check_forms(&mut Input::new(parameters)),
        _ => check_text(&String::from_utf8_lossy(data)),
    }
}

fn check_text(text: &str) {
    let ours = parse_connection_string(text);
    let Ok(mut theirs) = text.parse::<Config>() else {
        return;
    };
    if text.trim().is_empty() {
        assert!(
            ours.is_err(),
            "an empty text is more likely a mistake than a wish for the defaults"
        );
        return;
    }
    let mut ours = match ours {
        Ok((postgres, _)) => postgres,
        // tokio-postgres ignores everything after a parameter without a name.
        Err(error) if error.to_string().contains("a parameter has no value") => return,
        Err(error) => panic!("{text:?} is refused: {error}"),
    };
    if let Some(last) = theirs.get_options() {
        // Repeated options are joined here; tokio-postgres keeps the last.
        let joined = ours.get_options().unwrap_or_default().to_owned();
        assert!(joined.ends_with(last), "{joined:?}, {last:?}");
        theirs.options(joined);
    }
    if is_planted() && ours.get_hosts().len() > 1 {
        ours.dbname("another");
    }
    assert!(ours == theirs, "{text:?} is {ours:?}, not {theirs:?}");
}

fn check_forms(input: &mut Input<'_>) {
    let (mut pairs, mut url) = (String::new(), String::from("postgres://?"));
    let mut expected = Config::new();
    let (mut options, mut mode) = (Vec::new(), SslMode::Prefer);
    while let Some((choice, mut value)) = input.byte().zip(input.text()) {
        let key = KEYS[usize::from(choice) % KEYS.len()];
        match key {
            "options" => options.push(value.clone()),
            "statement-cache-capacity" => value = value.len().to_string(),
            "options[geqo]" => options.push(format!("-c geqo={}", option(&value))),
            "sslmode" => {
                let (name, means) = MODES[value.len() % MODES.len()];
                (value, mode) = (name.to_owned(), means);
            }
            _ => {}
        }
        match key {
            "user" => expected.user(&value),
            "password" => expected.password(&value),
            "dbname" => expected.dbname(&value),
            "application_name" => expected.application_name(&value),
            _ => &mut expected,
        };
        write_pair(&mut pairs, key, &value);
        let [key, value] = [key, &value].map(|text| utf8_percent_encode(text, NON_ALPHANUMERIC));
        url.push_str(&format!("{key}={value}&"));
    }
    expected.ssl_mode(mode);
    // Without parameters there are no pairs, and an empty text is refused.
    for text in [pairs, url].into_iter().filter(|text| !text.is_empty()) {
        let (parsed, verifies) =
            parse_connection_string(&text).unwrap_or_else(|error| panic!("{text:?} is refused: {error}"));
        let joined = options.join(" ");
        let given = parsed.get_options();
        assert_eq!(
            given.map(str::trim_start),
            (!options.is_empty()).then(|| joined.trim_start())
        );
        let mut expected = expected.clone();
        if let Some(given) = given {
            expected.options(given);
        }
        assert!(parsed == expected, "{text:?} is {:?}, not {expected:?}", parsed);
        assert!(!verifies || mode == SslMode::Require);
    }
}

const KEYS: [&str; 8] = [
    "user",
    "password",
    "dbname",
    "application_name",
    "options",
    "options[geqo]",
    "sslmode",
    "statement-cache-capacity",
];

const MODES: [(&str, SslMode); 6] = [
    ("disable", SslMode::Disable),
    ("allow", SslMode::Prefer),
    ("prefer", SslMode::Prefer),
    ("require", SslMode::Require),
    ("verify-ca", SslMode::Require),
    ("verify-full", SslMode::Require),
];

/// Writes `key=value`, quoted if necessary.
fn write_pair(pairs: &mut String, key: &str, value: &str) {
    let escaped: String = value
        .chars()
        .flat_map(|c| matches!(c, '\'' | '\\').then_some('\\').into_iter().chain([c]))
        .collect();
    if value.is_empty() || value.contains(char::is_whitespace) {
        pairs.push_str(&format!(" {key} = '{escaped}'"));
    } else {
        pairs.push_str(&format!(" {key}={escaped}"));
    }
}

/// Escapes spaces and backslashes, as the server requires in option values.
fn option(value: &str) -> String {
    let escaped = |c| matches!(c, ' ' | '\\').then_some('\\').into_iter().chain([c]);
    value.chars().flat_map(escaped).collect()
}

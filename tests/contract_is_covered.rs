//! Every sub-clause of `docs/contract.md` and `docs/contract-bus.md` names a test or a model, and every name exists.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use pulldown_cmark::{Event, HeadingLevel, Parser, Tag};

/// The id of each `### C4.2 …` section, and the names in its ``Tests: `a::b`, `c::d`. Models: `x`.``, each with its kind.
fn clauses(page: &str) -> Vec<(String, Vec<(&'static str, String)>)> {
    let mut found: Vec<(String, Vec<_>)> = Vec::new();
    let (mut in_heading, mut kind) = (false, "");
    for event in Parser::new(page) {
        match event {
            Event::Start(Tag::Heading { level, .. }) => (in_heading, kind) = (level == HeadingLevel::H3, ""),
            Event::Start(Tag::Paragraph) => (in_heading, kind) = (false, ""),
            Event::Text(text) if in_heading => {
                found.push((text.split(' ').next().unwrap_or_default().to_owned(), Vec::new()));
                in_heading = false;
            }
            Event::Text(text) if kind != "prose" => {
                kind = match text.trim_start_matches(". ") {
                    "Tests: " => "test",
                    "Models: " => "model",
                    ", " | "." => kind,
                    _ => "prose",
                }
            }
            Event::Code(name) if kind == "test" || kind == "model" => {
                let (_, names) = found.last_mut().expect("lists stand below a heading");
                names.push((kind, name.to_string()));
            }
            _ => {}
        }
    }
    found
}

/// The files in the repository below a path without its `.rs`, or at it.
fn sources(place: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(place).into_iter().flatten();
    let below = entries.flat_map(|entry| sources(&entry.unwrap().path().with_extension("")));
    let file = place.with_extension("rs");
    below.chain(Some(file).filter(|file| file.is_file())).collect()
}

fn read(place: &str) -> Vec<String> {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join(place);
    sources(&place)
        .iter()
        .map(|file| fs::read_to_string(file).unwrap())
        .collect()
}

/// Whether `file::function` names a test: in `tests/file.rs`, below `tests/file/`, or, with a folder, in `folder/file.rs`.
fn is_test(name: &str) -> bool {
    let (file, function) = name.rsplit_once("::").unwrap_or_default();
    let folder = if file.contains('/') { "" } else { "tests/" };
    read(&format!("{folder}{file}"))
        .iter()
        .any(|source| runs(source, function))
}

/// Whether the source has a test, a documentation test or an entry in a program's own list of tests of that name.
fn runs(source: &str, name: &str) -> bool {
    // The block above an item: its attributes and documentation.
    let above = |item: String| Some(source.split_once(&item)?.0.rsplit("\n\n").next()?.to_owned());
    let is_function = above(format!(" {name}(")).is_some_and(|above| {
        (above.contains("#[test]") || above.contains("#[tokio::test")) && !above.contains("#[ignore")
    });
    let is_documentation = above(format!("\nmod {name} {{}}")).is_some_and(|above| above.contains("compile_fail,E"));
    let list = source
        .split("const TESTS: ")
        .nth(1)
        .and_then(|rest| rest.split("];").next());
    is_function || is_documentation || list.is_some_and(|list| list.contains(&format!("\"{name}\"")))
}

/// The registrations `Model { name: "…", clauses: &[…], … }` in the sources of `loom-tests`.
fn models() -> BTreeMap<String, Vec<usize>> {
    let between = |text: &str, start, end| Some(text.split_once(start)?.1.split_once(end)?.0.to_owned());
    let sources = read("loom-tests/src").concat();
    let registrations = sources.split("Model {").filter_map(|text| {
        let clauses = between(text, "clauses: &[", ']')?;
        let clauses = clauses.split(',').filter_map(|clause| clause.trim().parse().ok());
        Some((between(text, "name: \"", '"')?, clauses.collect()))
    });
    registrations.collect()
}

/// What is wrong with a page.
fn problems(page: &str) -> Vec<String> {
    let (models, clauses) = (models(), clauses(page));
    let mut found = Vec::new();
    for (index, (id, names)) in clauses.iter().enumerate() {
        // The clauses about cluster events, the tenth, are K1, K2, ….
        let number = if id.starts_with('K') {
            Ok(10)
        } else {
            id[1..].split('.').next().unwrap().parse()
        };
        if names.is_empty() || clauses[..index].iter().any(|(other, _)| other == id) {
            found.push(format!("{id} names no test and no model, or stands twice"));
        }
        for (kind, name) in names {
            let declares = |clauses: &Vec<usize>| number.as_ref().is_ok_and(|number| clauses.contains(number));
            let exists = if *kind == "test" {
                is_test(name)
            } else {
                models.get(name).is_some_and(declares)
            };
            if !exists {
                found.push(format!(
                    "{id}: the {kind} `{name}` does not exist, or declares other clauses"
                ));
            }
        }
    }
    found
}

#[test]
fn every_clause_names_tests_that_exist() {
    for (name, page) in [
        ("contract.md", include_str!("../docs/contract.md")),
        ("contract-bus.md", include_str!("../docs/contract-bus.md")),
    ] {
        let found = problems(page);
        assert!(found.is_empty(), "docs/{name}:\n{}", found.join("\n"));
        assert!(
            clauses(page).len() > 20,
            "docs/{name}: too few sub-clauses were recognised"
        );
    }
}

#[test]
fn an_uncovered_clause_is_reported() {
    let list = "Tests: `contract_is_covered::an_uncovered_clause_is_reported`. Models: `exact_lag`.";
    let count = |list: &str| problems(&format!("### C4.2 Title\nProse with `code`.\n\n{list}\n")).len();
    assert_eq!(count(list), 0);
    for wrong in [
        "Nothing.",
        "Tests: `contract_is_covered::problems`.",
        "Tests: `no_file::no_test`.",
        "Models: `no_model`.",
        // A model that does not declare clause 4.
        "Models: `weak_publisher_against_the_last`.",
        &format!("{list}\n### C4.2 Title\n\n{list}"),
    ] {
        assert_eq!(count(wrong), 1, "{wrong}");
    }
}

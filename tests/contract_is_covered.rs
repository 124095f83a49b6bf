//! Keeps `docs/contract.md` and `docs/contract-bus.md` honest: every sub-clause names a test or a model, and what it names exists.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// How the clauses of a page are numbered, and how many there are at least.
#[derive(Clone, Copy)]
struct Numbering {
    id: fn(usize, usize) -> String,
    clauses: usize,
}

/// The clauses about the ring, and of its page those about cluster events, which are numbered by themselves.
const RING: Numbering = Numbering {
    id: |clause, number| {
        if clause == 10 {
            format!("K{number}")
        } else {
            format!("C{clause}.{number}")
        }
    },
    clauses: 9,
};

const BUS: Numbering = Numbering {
    id: |clause, number| format!("B{clause}.{number}"),
    clauses: 5,
};

/// One `### C4.2` section and what its last line names.
#[derive(Debug, Default)]
struct SubClause {
    id: String,
    /// The clause it belongs to.
    number: usize,
    line: usize,
    tests: Vec<String>,
    models: Vec<String>,
}

/// What a reading of the contract found.
#[derive(Debug, Default)]
struct Contract {
    sub_clauses: Vec<SubClause>,
    problems: Vec<String>,
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Reads `## 4. Title`, `### C4.2 Title`, `### K2 Title` and `Tests: … Models: ….` lines; everything else is prose.
fn parse(text: &str, numbering: Numbering) -> Contract {
    let mut contract = Contract::default();
    let mut clause = 0;
    let mut number = 0;
    for (index, line) in text.lines().enumerate() {
        let at = index + 1;
        if let Some(title) = line.strip_prefix("### ") {
            number += 1;
            let expected = (numbering.id)(clause, number);
            if title.split(' ').next() != Some(expected.as_str()) {
                contract
                    .problems
                    .push(format!("line {at}: expected {expected}, found `{title}`"));
            }
            contract.sub_clauses.push(SubClause {
                id: expected,
                number: clause,
                line: at,
                ..SubClause::default()
            });
        } else if let Some(title) = line.strip_prefix("## ") {
            if title == "Words" || title == "What others ran into" {
                continue;
            }
            if clause > 0 && number == 0 {
                contract.problems.push(format!("clause {clause} has no sub-clause"));
            }
            clause += 1;
            number = 0;
            if !title.starts_with(&format!("{clause}. ")) {
                contract
                    .problems
                    .push(format!("line {at}: expected clause {clause}, found `{title}`"));
            }
        } else if line.starts_with("Tests:") || line.starts_with("Models:") {
            match contract.sub_clauses.last_mut() {
                Some(last) if last.tests.is_empty() && last.models.is_empty() => {
                    if let Err(problem) = parse_names(line, last) {
                        contract.problems.push(format!("line {at}: {problem}"));
                    }
                }
                Some(last) => {
                    let problem = format!("line {at}: a second list of tests for {}", last.id);
                    contract.problems.push(problem);
                }
                None => contract
                    .problems
                    .push(format!("line {at}: a list of tests outside a sub-clause")),
            }
        }
    }
    if clause < numbering.clauses {
        contract.problems.push(format!(
            "found {clause} clauses, expected at least {}",
            numbering.clauses
        ));
    }
    contract
}

/// Reads ``Tests: `a::b`, `c::d`. Models: `x`.``
fn parse_names(line: &str, into: &mut SubClause) -> Result<(), String> {
    let line = line
        .trim_end()
        .strip_suffix('.')
        .ok_or("the list does not end with a full stop")?;
    for part in line.split(". ") {
        let (kind, names) = part
            .split_once(": ")
            .ok_or_else(|| format!("`{part}` is not `Kind: names`"))?;
        let list = match kind {
            "Tests" => &mut into.tests,
            "Models" => &mut into.models,
            _ => return Err(format!("unknown kind `{kind}`")),
        };
        for name in names.split(", ") {
            let bare = name.trim_matches('`');
            if bare.is_empty() || !bare.chars().all(|c| c.is_ascii_alphanumeric() || "_:/".contains(c)) {
                return Err(format!("`{name}` is not a name"));
            }
            list.push(bare.to_owned());
        }
    }
    Ok(())
}

/// What is wrong with a contract, given how to look up a test and a model.
fn problems(
    contract: &Contract,
    find_test: impl Fn(&str) -> Result<(), String>,
    find_model: impl Fn(&str, usize) -> Result<(), String>,
) -> Vec<String> {
    let mut found = contract.problems.clone();
    for clause in &contract.sub_clauses {
        let place = format!("{} (line {})", clause.id, clause.line);
        if clause.tests.is_empty() && clause.models.is_empty() {
            found.push(format!("{place} names no test and no model"));
        }
        let missing_tests = clause.tests.iter().filter_map(|name| find_test(name).err());
        let missing_models = clause
            .models
            .iter()
            .filter_map(|name| find_model(name, clause.number).err());
        found.extend(missing_tests.chain(missing_models).map(|why| format!("{place}: {why}")));
    }
    found
}

/// `waiting::name` is a test in `tests/waiting.rs` or below `tests/waiting/`; with a folder, `src/ring/bell::name` is one in
/// that file.
fn find_test(name: &str) -> Result<(), String> {
    let (place, function) = name
        .rsplit_once("::")
        .ok_or_else(|| format!("`{name}` is not `file::function`"))?;
    let place = if place.contains('/') {
        repository().join(place)
    } else {
        repository().join("tests").join(place)
    };
    let mut files = sources(&place);
    files.extend(Some(place.with_extension("rs")).filter(|file| file.is_file()));
    if files.is_empty() {
        return Err(format!("`{name}`: there is no {}.rs", place.display()));
    }
    let found: Vec<_> = files.iter().map(|file| is_test(&read(file), function)).collect();
    let main = place.join("main.rs");
    if main.is_file() && is_registered(&read(&main), function) && found.iter().any(is_there) {
        return Ok(());
    }
    if found.iter().any(Result::is_ok) {
        return Ok(());
    }
    // The most telling of the complaints: a function that is there, but is no test.
    let why = found
        .into_iter()
        .filter_map(Result::err)
        .max_by_key(|why| !why.starts_with("no function"));
    Err(format!("`{name}`: {}", why.unwrap_or_default()))
}

/// Whether the looked for function is in the file, test or not.
fn is_there(found: &Result<(), String>) -> bool {
    !matches!(found, Err(why) if why.starts_with("no function"))
}

/// Whether a test program with a `main` of its own lists this function as a test.
fn is_registered(main: &str, function: &str) -> bool {
    main.split_once("const TESTS: ")
        .and_then(|(_, rest)| rest.split_once("];"))
        .is_some_and(|(tests, _)| tests.contains(&format!("\"{function}\"")))
}

/// Whether `source` has a function of that name that the test harness runs.
fn is_test(source: &str, function: &str) -> Result<(), String> {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let signature = format!("fn {function}(");
    let at = lines
        .iter()
        .map(|line| line.strip_prefix("pub(crate) ").unwrap_or(line))
        .position(|line| line.starts_with(&signature) || line.starts_with(&format!("async {signature}")))
        .ok_or_else(|| format!("no function `{function}`"))?;
    let attributes: Vec<&str> = lines[..at]
        .iter()
        .rev()
        .take_while(|line| line.starts_with('#') || line.starts_with("//"))
        .copied()
        .collect();
    if attributes.iter().any(|line| line.starts_with("#[ignore")) {
        return Err(format!("`{function}` is ignored"));
    }
    if !attributes
        .iter()
        .any(|line| *line == "#[test]" || line.starts_with("#[tokio::test"))
    {
        return Err(format!("`{function}` is not a test"));
    }
    Ok(())
}

/// All Rust files below a folder, none if there is no such folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// The models that `loom-tests` registers, each with the clauses that it says it checks, read from its sources.
fn registered_models() -> BTreeMap<String, Vec<usize>> {
    let sources = sources(&repository().join("loom-tests/src"));
    sources.iter().flat_map(|path| models_in(&read(path))).collect()
}

/// Reads `Model { name: "…", clauses: &[…], … }` registrations.
fn models_in(source: &str) -> Vec<(String, Vec<usize>)> {
    let between = |text: &str, start: &str, end: char| {
        let (_, rest) = text.split_once(start)?;
        Some(rest.split_once(end)?.0.to_owned())
    };
    source
        .split("Model {")
        .filter_map(|registration| {
            let name = between(registration, "name: \"", '"')?;
            let clauses = between(registration, "clauses: &[", ']')?;
            let clauses = clauses.split(',').filter_map(|clause| clause.trim().parse().ok());
            Some((name, clauses.collect()))
        })
        .collect()
}

fn report(page: &str, problems: &[String]) -> String {
    let mut text = format!("docs/{page} has {} problem(s):\n", problems.len());
    for problem in problems {
        writeln!(text, "  {problem}").expect("a String takes everything");
    }
    text
}

#[test]
fn every_clause_names_tests_that_exist() {
    let models = registered_models();
    let find_model = |name: &str, clause: usize| match models.get(name) {
        Some(clauses) if clauses.contains(&clause) => Ok(()),
        Some(clauses) => Err(format!("model `{name}` says that it checks {clauses:?}")),
        None => Err(format!("loom-tests registers no model `{name}`")),
    };
    for (page, numbering) in [("contract.md", RING), ("contract-bus.md", BUS)] {
        let contract = parse(&read(&repository().join("docs").join(page)), numbering);
        let found = problems(&contract, find_test, find_model);
        assert!(found.is_empty(), "{}", report(page, &found));
    }
}

/// A contract of nine clauses with one sub-clause each; the given one ends with `names`.
fn sample(clause: usize, names: &str) -> String {
    let mut text = "# Contract\n".to_owned();
    for number in 1..=RING.clauses {
        let names = if number == clause {
            names
        } else {
            "Tests: `file::good`."
        };
        writeln!(text, "## {number}. Title\n### C{number}.1 Title\nProse.\n\n{names}\n")
            .expect("a String takes everything");
    }
    text
}

fn problems_of_sample(names: &str) -> Vec<String> {
    let look_up = |name: &str| {
        if name.ends_with("good") {
            Ok(())
        } else {
            Err(format!("`{name}` is missing"))
        }
    };
    problems(&parse(&sample(4, names), RING), look_up, |name, _| look_up(name))
}

#[test]
fn a_covered_contract_passes() {
    assert_eq!(
        problems_of_sample("Tests: `file::good`, file::also_good. Models: `good`."),
        [""; 0]
    );
    assert_eq!(problems_of_sample("Models: `good`."), [""; 0]);
}

#[test]
fn what_is_missing_is_noticed() {
    for (names, complaint) in [
        ("Nothing here.", "names no test"),
        ("Tests: `file::bad`.", "`file::bad` is missing"),
        ("Models: `good`, `bad`.", "`bad` is missing"),
        ("Tests: `file::good`", "full stop"),
        ("Tests: `file::good`. Modles: `good`.", "unknown kind"),
        ("Tests: see elsewhere.", "is not a name"),
        ("Tests: `file::good`.\nTests: `file::good`.", "second list"),
        ("### C4.3 Title\nTests: `file::good`.", "expected C4.2"),
        ("## 6. Title\n### C6.1 Title\nTests: `file::good`.", "expected clause 5"),
    ] {
        let found = problems_of_sample(names);
        assert!(
            found.iter().any(|problem| problem.contains(complaint)),
            "{names}: {found:?}"
        );
    }
}

#[test]
fn registrations_are_read() {
    let source = r#"Model { name: "a", clauses: &[1, 4], run: a }, Model { name: "b", clauses: &[9], run: b }"#;
    assert_eq!(
        models_in(source),
        [("a".to_owned(), vec![1, 4]), ("b".to_owned(), vec![9])]
    );
}

#[test]
fn a_program_with_a_main_of_its_own_lists_its_tests() {
    let main = r#"const TESTS: &[(&str, fn())] = &[("listed", module::listed)]; const OTHERS: &[&str] = &["other"];"#;
    assert!(is_registered(main, "listed"));
    assert!(!is_registered(main, "list"));
    assert!(!is_registered(main, "other"));
    assert!(!is_registered("", "listed"));
}

#[test]
fn only_functions_that_run_are_tests() {
    let source = "
        #[test]
        // why
        fn plain() {}

        #[tokio::test(flavor = \"current_thread\")]
        async fn on_tokio() {}

        #[test]
        #[ignore]
        fn ignored() {}

        fn helper() {}
    ";
    assert_eq!(is_test(source, "plain"), Ok(()));
    assert_eq!(is_test(source, "on_tokio"), Ok(()));
    assert!(is_test(source, "ignored").is_err());
    assert!(is_test(source, "helper").is_err());
    assert!(is_test(source, "plai").is_err());
}

//! Keeps `docs/memory-ordering.md` honest: the table and the engine's source name the same sites with the same orderings, every
//! model it names exists, and what no model can see is argued in prose.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

#[allow(dead_code, unreachable_pub, reason = "shared with the mutants, which use more of it")]
#[path = "../loom-tests/src/sites.rs"]
mod sites;

use sites::{Kind, Row, Site};

/// An argument shorter than this many words cannot be one.
const LEAST_WORDS: usize = 25;

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The names of the models in `loom-tests/src/models`.
fn models() -> BTreeSet<String> {
    let folder = repository().join("loom-tests/src/models");
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(&folder).expect("the folder of the models") {
        let text = read(&entry.expect("a readable entry").path());
        for (at, start) in text.match_indices("name: \"") {
            let rest = &text[at + start.len()..];
            names.extend(rest.split('"').next().map(str::to_owned));
        }
    }
    names
}

/// Everything that is wrong between the sites, the document and the models.
fn problems(sites: &[Site], document: &str, models: &BTreeSet<String>) -> Vec<String> {
    let rows = match sites::read_table(document) {
        Ok(rows) => rows,
        Err(error) => return vec![error],
    };
    let mut found = Vec::new();
    for (index, site) in sites.iter().enumerate() {
        let place = format!("{}:{}: `{}`", site.file.display(), site.line, site.name);
        if sites[..index].iter().any(|other| other.name == site.name) {
            found.push(format!("{place} is the name of another site too"));
        }
        match rows.iter().filter(|row| row.site == site.name).count() {
            1 => {}
            count => found.push(format!("{place} has {count} rows instead of one")),
        }
    }
    for row in &rows {
        let place = format!("line {}: `{}`", row.line, row.site);
        match sites.iter().find(|site| site.name == row.site) {
            None => found.push(format!("{place} is nowhere in the engine")),
            Some(site) => {
                found.extend(problems_of_row(row, site, document, models).map(|why| format!("{place} {why}")))
            }
        }
    }
    found
}

fn problems_of_row(row: &Row, site: &Site, document: &str, models: &BTreeSet<String>) -> impl Iterator<Item = String> {
    let mut found = Vec::new();
    if row.ordering != site.kind.to_string() {
        found.push(format!("says {}, the engine {}", row.ordering, site.kind));
    }
    if row.pairs_with.is_empty() || row.why.is_empty() {
        found.push("has an empty cell".to_owned());
    }
    for model in &row.models {
        if !models.contains(model) {
            found.push(format!("names `{model}`, which is no model"));
        }
    }
    let changes = site.changes();
    for change in &row.argued {
        if !changes.contains(&change.as_str()) {
            found.push(format!("argues for {change}, which is no mutant of it"));
        }
    }
    if row.models.is_empty()
        && changes
            .iter()
            .any(|change| !row.argued.iter().any(|argued| argued == change))
    {
        found.push("names no model, and does not argue for every mutant".to_owned());
    }
    if !row.argued.is_empty() {
        let words = sites::argument(document, &row.site).map(|text| text.split_whitespace().count());
        if words.is_none_or(|words| words < LEAST_WORDS) {
            found.push("is argued, without a section that argues".to_owned());
        }
    }
    found.into_iter()
}

#[test]
fn the_table_and_the_engine_agree() {
    let sites = sites::scan(&repository().join("src/ring")).expect("the engine's source");
    assert!(!sites.is_empty(), "the scan found no site at all");
    let document = read(&repository().join("docs/memory-ordering.md"));
    let found = problems(&sites, &document, &models());
    assert!(found.is_empty(), "docs/memory-ordering.md:\n  {}", found.join("\n  "));
}

const HEADER: &str = "| site | ordering | pairs with | why | killed by |\n|---|---|---|---|---|\n";

fn site(name: &str, kind: Kind) -> Site {
    Site {
        name: name.to_owned(),
        kind,
        file: PathBuf::from("slot.rs"),
        line: 7,
    }
}

fn complaints(sites: &[Site], table: &str) -> String {
    let models = BTreeSet::from(["a_model".to_owned()]);
    problems(sites, &format!("{HEADER}{table}"), &models).join("\n")
}

#[test]
fn a_true_table_passes() {
    let sites = [
        site("a.store", Kind::Operation("Release".to_owned())),
        site("a.fence", Kind::Fence),
        site("a.fault", Kind::Fault),
    ];
    let table = format!(
        "| `a.store` | Release | `a.load` | data | `a_model` |\n\
         | `a.fence` | fence | itself | order | `a_model`, argued AcqRel |\n\
         | `a.fault` | fault | - | lost | `a_model` |\n\
         \n### `a.fence`\n{}\n",
        "because ".repeat(LEAST_WORDS)
    );
    assert_eq!(complaints(&sites, &table), "");
}

#[test]
fn every_kind_of_drift_is_noticed() {
    let release = || site("a.store", Kind::Operation("Release".to_owned()));
    let row = "| `a.store` | Release | `a.load` | data | `a_model` |\n";
    for (sites, table, complaint) in [
        (vec![release()], String::new(), "has 0 rows"),
        (vec![release()], row.repeat(2), "has 2 rows"),
        (vec![], row.to_owned(), "is nowhere in the engine"),
        (vec![release(), release()], row.to_owned(), "the name of another site"),
        (
            vec![release()],
            row.replace("Release", "Acquire"),
            "says Acquire, the engine Release",
        ),
        (
            vec![release()],
            row.replace("a_model", "gone"),
            "`gone`, which is no model",
        ),
        (vec![release()], row.replace("data", ""), "has an empty cell"),
        (vec![release()], row.replace("data |", ""), "4 cells instead of 5"),
        (
            vec![release()],
            row.replace("`a_model`", "argued Relaxed"),
            "without a section",
        ),
        (
            vec![release()],
            row.replace("`a_model`", "argued dropped"),
            "no mutant of it",
        ),
        (vec![release()], row.replace("`a_model`", "nobody"), "cannot read"),
    ] {
        let found = complaints(&sites, &table);
        assert!(found.contains(complaint), "{table}: {found}");
    }
}

#[test]
fn sites_are_found_in_source() {
    let folder = std::env::temp_dir().join(format!("doorbell-sites-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a scratch folder");
    let source = "// ord!(\"comment.only\", Release)\n\
                  a.store(1, ord!(\"a.store\", Release));\n\
                  a.load(ord!(\n    \"a.load\",\n    Acquire\n));\n\
                  named_fence!(\"a.fence\"); if fault!(\"a.fault\") { word!(\"other\") }\n";
    fs::write(folder.join("slot.rs"), source).expect("a scratch file");
    let found = sites::scan(&folder).expect("a readable folder");
    fs::remove_dir_all(&folder).expect("the scratch folder goes");
    let seen: Vec<(String, String, usize)> = found
        .iter()
        .map(|site| (site.name.clone(), site.kind.to_string(), site.line))
        .collect();
    let expected = [
        ("a.store", "Release", 2),
        ("a.load", "Acquire", 3),
        ("a.fence", "fence", 7),
        ("a.fault", "fault", 7),
    ];
    assert_eq!(
        seen,
        expected.map(|(name, kind, line)| (name.to_owned(), kind.to_owned(), line))
    );
}

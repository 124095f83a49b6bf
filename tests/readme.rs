//! The first Rust example of the README is the text of `examples/embed.rs`, which `.ci/test` also runs.

#[test]
fn the_readme_shows_the_example() {
    let readme = include_str!("../README.md");
    let shown = readme
        .split_once("```rust\n")
        .and_then(|(_, rest)| rest.split_once("```"))
        .map(|(code, _)| code)
        .expect("README.md has a ```rust block");
    assert_eq!(
        shown,
        include_str!("../examples/embed.rs"),
        "the first Rust block of README.md and examples/embed.rs differ"
    );
}

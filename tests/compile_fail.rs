//! What must not compile, each with a twin that does and differs only in the point.
//!
//! The twins are part of this program, so that they are compiled, and run, with it.

#[path = "compile_fail/batch_item_twin.rs"]
mod batch_item_twin;
#[path = "compile_fail/borrowed_value_twin.rs"]
mod borrowed_value_twin;
#[path = "compile_fail/broadcast_not_sync_twin.rs"]
mod broadcast_not_sync_twin;
#[path = "compile_fail/by_value_twin.rs"]
mod by_value_twin;
#[path = "compile_fail/not_send_twin.rs"]
mod not_send_twin;
#[path = "compile_fail/not_sync_twin.rs"]
mod not_sync_twin;
#[path = "compile_fail/ref_twin.rs"]
mod ref_twin;
#[path = "compile_fail/threads_twin.rs"]
mod threads_twin;
#[path = "compile_fail/two_receives_twin.rs"]
mod two_receives_twin;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The library that cargo has just built for this program; any build of it will do, and the newest is surely of today's source.
fn library(deps: &Path) -> PathBuf {
    let builds = fs::read_dir(deps).unwrap().map(|entry| entry.unwrap());
    let builds = builds.filter(|entry| {
        let name = entry.file_name();
        let name = name.to_str().unwrap_or("");
        name.starts_with("libdoorbell-") && name.ends_with(".rlib")
    });
    let newest = builds.max_by_key(|entry| entry.metadata().unwrap().modified().unwrap());
    newest.expect("the library is among the dependencies").path()
}

/// What the compiler says of `case`: whether it takes it, and its complaints.
fn compile(case: &str, deps: &Path) -> (bool, String) {
    let output = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .args([
            "--edition",
            "2024",
            "--crate-type",
            "bin",
            "--emit",
            "metadata",
            "--color",
            "never",
        ])
        .arg("--out-dir")
        .arg(env!("CARGO_TARGET_TMPDIR"))
        .arg("--extern")
        .arg(format!("doorbell={}", library(deps).display()))
        .arg("-L")
        .arg(format!("dependency={}", deps.display()))
        .arg(format!("tests/compile_fail/{case}.rs"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("the compiler runs");
    (
        output.status.success(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

/// The second line of a case: the code and the words of the error that it must give, and no other.
fn refused(case: &str, deps: &Path) {
    let source = fs::read_to_string(format!("{}/tests/compile_fail/{case}.rs", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let expected = source
        .lines()
        .nth(1)
        .and_then(|line| line.strip_prefix("//! "))
        .unwrap();
    let (code, words) = expected.split_once(' ').unwrap();
    let (taken, complaints) = compile(case, deps);
    assert!(!taken, "{case} compiles");
    let mut errors = complaints.lines().filter(|line| line.starts_with("error[")).peekable();
    assert!(errors.peek().is_some(), "{case}: {complaints}");
    for error in errors {
        assert!(
            error.starts_with(&format!("error[{code}]")) && error.contains(words),
            "{case} is refused for another reason: {complaints}"
        );
    }
}

#[test]
fn unsound_uses_do_not_compile() {
    let program = std::env::current_exe().unwrap();
    let deps = program.parent().unwrap();
    for case in [
        "batch_item_across_receive",
        "batch_item_outlives_subscriber",
        "borrowed_value",
        "broadcast_not_sync",
        "by_value_needs_clone",
        "not_send",
        "not_sync",
        "ref_across_receive",
        "ref_outlives_subscriber",
        "two_receives_at_once",
    ] {
        refused(case, deps);
    }
    // A twin by the same road, so that a refusal cannot come from the road.
    let (taken, complaints) = compile("twin", deps);
    assert!(taken, "{complaints}");
}

/// Field report R15, beside the others in `field_reports.rs`: sharing such a value between subscribers would be unsound.
#[test]
fn r15_values_that_are_not_sync_do_not_compile() {
    let program = std::env::current_exe().unwrap();
    refused("not_sync", program.parent().unwrap());
    not_sync_twin::main();
}

#[test]
fn their_twins_compile_and_run() {
    batch_item_twin::main();
    borrowed_value_twin::main();
    broadcast_not_sync_twin::main();
    by_value_twin::main();
    not_send_twin::main();
    not_sync_twin::main();
    ref_twin::main();
    threads_twin::main();
    two_receives_twin::main();
}

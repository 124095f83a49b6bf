//! The commands that measure the bus, in little: that they work, and what they conclude. No figure is looked at.

use std::process::{Command, Output};

/// Runs the program, for five minutes at most: a candidate that loses an event could wait for it forever.
fn perf(arguments: &[&str]) -> Output {
    let output = Command::new("timeout")
        .args(["--signal=KILL", "300", env!("CARGO_BIN_EXE_doorbell-perf")])
        .args(arguments)
        .output()
        .expect("the program starts");
    println!("{}", String::from_utf8_lossy(&output.stdout));
    eprintln!("{}", String::from_utf8_lossy(&output.stderr));
    output
}

#[test]
fn every_candidate_is_measured_and_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let [csv, svg] = ["latency.csv", "latency.svg"].map(|name| folder.path().join(name));
    let output = perf(&[
        "bus-latency",
        "--rates=100",
        "--subscribers=4",
        "--streams=2",
        "--seconds=0.2",
        "--rounds=2",
        "--csv",
        csv.to_str().unwrap(),
        "--svg",
        svg.to_str().unwrap(),
    ]);
    assert!(output.status.success());
    let csv = std::fs::read_to_string(csv).unwrap();
    // 18 of 20 events in each round, to 2 subscribers each.
    for line in ["each,72", "last,36"] {
        for candidate in ["doorbell", "naive", "pg-bus"] {
            let start = format!("{candidate},4,2,100,{line},");
            assert!(csv.lines().any(|line| line.starts_with(&start)), "{start} in {csv}");
        }
    }
    assert!(std::fs::read_to_string(svg).unwrap().contains("naive"));
}

#[test]
fn uneven_numbers_of_subscribers_are_refused() {
    let output = perf(&["bus-latency", "--subscribers=3", "--streams=2"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("evenly"));
}

#[test]
fn a_short_soak_finds_nothing() {
    let output = perf(&["bus-soak", "--duration=3", "--publishers=2", "--subscribers=1"]);
    assert!(output.status.success());
}

#[test]
fn a_short_soak_with_faults_finds_nothing() {
    let output = perf(&[
        "bus-soak",
        "--duration=3",
        "--publishers=2",
        "--subscribers=1",
        "--faults=0.3",
    ]);
    assert!(output.status.success());
}

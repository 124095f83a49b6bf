//! Runs `fanout` as a user does, as a process, with valid and invalid input.

#[path = "fanout/process.rs"]
mod process;

use std::fs;
use std::io::Write;

use process::{Run, fanout};

/// Enough text to fill every buffer several times over: once it is written, the program has read some of it.
const MORE_THAN_THE_BUFFERS: usize = 4 << 20;

fn numbered_lines(count: usize) -> String {
    (1..=count).map(|number| format!("line {number}\n")).collect()
}

#[test]
fn the_built_in_log_reaches_every_subscriber() {
    let run = fanout(["--json", "--rate", "0", "--capacity", "4096", "--slow", "0"]).run_with(b"");
    let report = run.json();
    assert_eq!(run.status, Some(0));
    assert_eq!(run.stderr, "", "no progress where there is no terminal");
    assert_eq!(report["published"]["events"], 4000);
    let subscribers = report["subscribers"].as_array().expect("an array");
    assert_eq!(subscribers.len(), 6);
    for subscriber in subscribers {
        assert_eq!(
            subscriber["received"], 4000,
            "nothing is lost when the ring holds it all"
        );
        assert_eq!(subscriber["adds_up"], true);
    }
}

#[test]
fn the_table_ends_with_the_totals() {
    let run = fanout(["-", "--tasks", "9", "--delay-ms", "0"]).run_with(numbered_lines(1000).as_bytes());
    assert_eq!(run.status, Some(0));
    for part in ["1,000 events", "task, all 9", "thread 2", "slow 1", "p99.9"] {
        assert!(run.stdout.contains(part), "{part:?} is missing in\n{}", run.stdout);
    }
    let verdict = "received + skipped = 1,000 published, for 12 of 12 subscribers.";
    assert_eq!(run.stdout.lines().last(), Some(verdict));
}

#[test]
fn a_slow_subscriber_gets_the_number_of_missed_events() {
    let run =
        fanout(["-", "--json", "--capacity", "16", "--delay-ms", "5"]).run_with(numbered_lines(100_000).as_bytes());
    assert_eq!(run.status, Some(0));
    let report = run.json();
    let slow = report["subscribers"]
        .as_array()
        .and_then(|all| all.last())
        .expect("a slow subscriber");
    let count = |name: &str| slow[name].as_u64().expect("a number");
    assert_eq!(count("received") + count("skipped"), 100_000);
    assert!(count("skipped") > 0 && count("lag_events") > 0, "{slow}");
}

#[test]
fn a_paced_run_takes_its_time() {
    let run = fanout(["-", "--json", "--rate", "2000"]).run_with(numbered_lines(501).as_bytes());
    let seconds = run.json()["published"]["seconds"].as_f64().expect("a number");
    assert!(seconds >= 0.25, "500 intervals of 0.5 ms, not {seconds} s");
}

#[test]
fn a_file_is_read_to_its_end() {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    fs::write(file.path(), numbered_lines(10)).expect("the file can be written");
    let path = file.path().to_str().expect("a readable path");
    let run = fanout([path, "--json"]).run_with(b"");
    assert_eq!(run.json()["published"]["events"], 10);
}

#[test]
fn unreadable_inputs_and_wrong_options_are_named() {
    fanout(["no/such.log"])
        .run_with(b"")
        .is_refused(3, "cannot read no/such.log: ");
    fanout(["src"]).run_with(b"").is_refused(3, "src is a directory");
    fanout(["-", "--capacity", "0"])
        .run_with(b"")
        .is_refused(2, "--capacity");
    fanout(["--no-such-option"])
        .run_with(b"")
        .is_refused(2, "--no-such-option");
}

#[test]
fn invalid_utf8_and_huge_lines_are_published_and_counted() {
    let mut input = b"good\n\xff\xfe\xfd\n".to_vec();
    input.extend(b"x".repeat(10 << 20));
    input.extend("\nlast, without an end: é".as_bytes());
    let run = fanout(["-", "--json"]).run_with(&input);
    let report = run.json();
    assert_eq!(run.status, Some(0));
    assert_eq!(report["published"]["events"], 4);
    assert_eq!(report["published"]["lines_truncated"], 1);
    assert_eq!(report["published"]["lines_with_invalid_utf8"], 1);
    // The huge line is cut at --max-line; each invalid byte becomes a character of three bytes; six subscribers receive.
    let text = "good".len() + 3 * 3 + 4 * 1024 + "last, without an end: é".len();
    assert_eq!(report["delivered"]["bytes"], 6 * text);
}

#[test]
fn an_empty_input_is_reported_as_empty() {
    let run = fanout(["-"]).run_with(b"");
    assert_eq!(run.status, Some(0));
    assert!(run.stdout.contains("the input had no lines"), "{}", run.stdout);
}

#[test]
fn a_run_needs_no_subscribers() {
    let run = fanout(["-", "--tasks", "0", "--threads", "0", "--slow", "0"]).run_with(numbered_lines(5000).as_bytes());
    assert_eq!(run.status, Some(0));
    assert!(
        run.stdout.contains("5,000 events published, to no subscriber."),
        "{}",
        run.stdout
    );
}

#[test]
fn a_closed_standard_output_is_not_an_error() {
    let mut process = fanout(["-"]).start();
    drop(process.stdout());
    process
        .stdin()
        .write_all(numbered_lines(10).as_bytes())
        .expect("it reads");
    let run = process.finish();
    assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""));
}

#[cfg(unix)]
mod unix {
    use super::*;

    /// Runs the program from a shell, which can close its standard streams.
    fn shell(script: &str) -> Run {
        process::Command::new("sh", ["-c".into(), script.into(), process::PROGRAM.into()]).run_with(b"")
    }

    #[test]
    fn standard_input_may_be_closed() {
        let run = shell(r#""$0" - <&-"#);
        assert_eq!(run.status, Some(0), "{}", run.stderr);
        assert!(run.stdout.contains("the input had no lines"), "{}", run.stdout);
    }

    #[test]
    fn standard_error_may_be_closed() {
        let run = shell(r#""$0" no/such.log 2>&-"#);
        assert_eq!((run.status, run.stdout.as_str()), (Some(3), ""));
    }

    #[test]
    fn ctrl_c_ends_a_silent_input_and_reports() {
        let mut process = fanout(["-", "--json"]).start();
        let mut stdin = process.stdin();
        stdin
            .write_all(&b"event\n".repeat(MORE_THAN_THE_BUFFERS / 6))
            .expect("it reads");
        process.interrupt();
        // The input stays open: only the signal can end the run.
        let run = process.finish();
        drop(stdin);
        let report = run.json();
        assert_eq!(run.status, Some(130), "{}", run.stderr);
        assert_eq!(report["interrupted"], true);
        assert_eq!(report["adds_up"], true);
        assert!(
            report["published"]["events"].as_u64() > Some(0),
            "what arrived before is reported"
        );
    }

    #[test]
    fn ctrl_c_ends_an_endless_input_and_wakes_slow_subscribers() {
        let hours = "10000000";
        let mut process = fanout(["-", "--json", "--delay-ms", hours]).start();
        let mut stdin = process.stdin();
        let mut written = 0;
        let line = b"event\n".repeat(1000);
        // Ends with a broken pipe when the program has ended.
        while stdin.write_all(&line).is_ok() {
            written += line.len();
            if (MORE_THAN_THE_BUFFERS..MORE_THAN_THE_BUFFERS + line.len()).contains(&written) {
                process.interrupt();
            }
        }
        let run = process.finish();
        assert_eq!(run.status, Some(130), "{}", run.stderr);
        assert_eq!(run.json()["adds_up"], true);
    }

    #[test]
    fn ctrl_c_ends_a_paced_run() {
        let mut process = fanout(["-", "--json", "--rate", "1"]).start();
        let mut stdin = process.stdin();
        let (written, accepted) = std::sync::mpsc::channel();
        let line = b"event\n".repeat(1000);
        let writer = std::thread::spawn(move || {
            while stdin.write_all(&line).is_ok() {
                // The receiver is dropped once it has counted enough.
                let _ = written.send(line.len());
            }
        });
        // More than the pipe takes, less than the program reads ahead.
        let accepted: usize = accepted.iter().take(30).sum();
        assert_eq!(accepted, 180_000);
        process.interrupt();
        let run = process.finish();
        writer.join().expect("it ends with the program");
        assert_eq!(run.status, Some(130), "{}", run.stderr);
        assert_eq!(run.json()["adds_up"], true);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_read_error_still_reports() {
    // A regular file that opens, but fails to be read.
    let run = fanout(["/proc/self/mem"]).run_with(b"");
    assert_eq!(run.status, Some(3));
    assert!(run.stdout.contains("0 events in"), "{}", run.stdout);
    assert!(!run.stdout.contains("no lines"), "{}", run.stdout);
    assert!(run.stderr.contains("cannot read /proc/self/mem: "), "{}", run.stderr);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_reported() {
    let run = process::Command::new(
        "sh",
        ["-c".into(), r#""$0" - > /dev/full"#.into(), process::PROGRAM.into()],
    )
    .run_with(b"line\n");
    run.is_refused(3, "cannot write the report: ");
}

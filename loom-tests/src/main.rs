//! Runs the models: all of them, or those whose names contain an argument.
//!
//! ```text
//! cargo run --release -p doorbell-loom
//! cargo run --release -p doorbell-loom -- lapped
//! cargo run --release -p doorbell-loom -- --list
//! ```

use doorbell_loom::child::{self, CHILD, Verdict};
use doorbell_loom::parallel;
use doorbell_loom::registry::{self, Model};
use doorbell_loom::self_check;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Well above what a model may take on an idle machine, which is a minute.
const LIMIT: Duration = Duration::from_secs(300);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        Some((first, rest)) if first == CHILD => child::serve(rest),
        Some((first, [])) if first == "--list" => {
            for model in registry::all() {
                println!("{}", describe(&model));
            }
            ExitCode::SUCCESS
        }
        _ => run(&arguments),
    }
}

fn run(wanted: &[String]) -> ExitCode {
    let models: Vec<Model> = registry::all()
        .into_iter()
        .filter(|model| wanted.is_empty() || wanted.iter().any(|part| model.name.contains(part)))
        .collect();
    if models.is_empty() {
        eprintln!("no model has a name that contains {}", wanted.join(" or "));
        return ExitCode::from(2);
    }
    if let Err(missing) = self_check::every_order_is_explored() {
        eprintln!("the models would not explore every order: {missing}");
        return ExitCode::FAILURE;
    }
    let start = Instant::now();
    let mut failures = Vec::new();
    parallel::each(
        &models,
        |model| child::run(model.name, None, LIMIT),
        |model, outcome| match outcome {
            Ok(outcome) => {
                let verdict = match outcome.verdict {
                    Verdict::Passed => "ok",
                    Verdict::Failed => "FAILED",
                    Verdict::TimedOut => "TIMED OUT",
                };
                let executions = outcome.executions.map_or("-".to_owned(), |n| n.to_string());
                println!(
                    "{} {executions:>9} executions {:>7.2} s  {verdict}",
                    describe(model),
                    outcome.elapsed.as_secs_f64()
                );
                if outcome.verdict != Verdict::Passed {
                    failures.push((model.name, outcome.log));
                }
            }
            Err(error) => failures.push((model.name, error.to_string())),
        },
    );
    for (name, log) in &failures {
        println!("\n---- {name} ----\n{}", head(log));
    }
    println!(
        "\n{} models, {} failed, {:.0} s",
        models.len(),
        failures.len(),
        start.elapsed().as_secs_f64()
    );
    if failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn describe(model: &Model) -> String {
    let clauses: Vec<String> = model.clauses.iter().map(u8::to_string).collect();
    format!(
        "{:<44} clauses {:<9} {:<16}",
        model.name,
        clauses.join(","),
        model.bound.to_string()
    )
}

/// The first lines of a failure say what went wrong; loom's dump of its state follows and is long.
fn head(log: &str) -> String {
    log.lines().take(40).collect::<Vec<_>>().join("\n")
}

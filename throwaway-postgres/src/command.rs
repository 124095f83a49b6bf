//! Runs programs to completion.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::Error;

/// Runs `command` with this standard input, and returns its standard output.
pub(crate) fn run(command: &mut Command, input: Option<&[u8]>) -> Result<Vec<u8>, Error> {
    let program = command.get_program().to_string_lossy().into_owned();
    let failed = || Error::io(format!("run {program}"));
    let mut child = command
        .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed())?;
    // Write on another thread: a program that writes before it has read everything must not deadlock with this process.
    let stdin = child.stdin.take();
    let output = std::thread::scope(|scope| {
        if let (Some(mut stdin), Some(input)) = (stdin, input) {
            // If the program exits early, its status shows why.
            scope.spawn(move || stdin.write_all(input).ok());
        }
        child.wait_with_output()
    })
    .map_err(failed())?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(Error::Command {
        program,
        status: output.status,
        output: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

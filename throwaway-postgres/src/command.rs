//! Runs programs to completion.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::{Error, processes};

/// The time that a program may take. Far more than any needs: one that waits for something that never comes must fail, not hang.
const LIMIT: Duration = Duration::from_secs(300);

/// Runs `command` with this standard input, and returns its standard output. Kills it after [`LIMIT`].
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
    let pid = child.id();
    let (ended, end) = channel::<()>();
    let output = std::thread::scope(|scope| {
        scope.spawn(move || {
            if end.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout) {
                processes::send(pid, Signal::SIGKILL);
            }
        });
        if let (Some(mut stdin), Some(input)) = (stdin, input) {
            // If the program exits early, its status shows why.
            scope.spawn(move || stdin.write_all(input).ok());
        }
        let output = child.wait_with_output();
        drop(ended);
        output
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

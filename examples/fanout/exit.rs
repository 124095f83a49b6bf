//! The exit status, as `--help` documents it.

pub(crate) const OK: u8 = 0;
pub(crate) const DOES_NOT_ADD_UP: u8 = 1;
/// The command line parser uses it too.
pub(crate) const WRONG_USAGE: u8 = 2;
pub(crate) const INPUT_OR_OUTPUT: u8 = 3;
pub(crate) const INTERRUPTED: u8 = 130;

/// Why there is no run, or no report, at all.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: u8,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(message: String) -> Self {
        Self {
            status: INPUT_OR_OUTPUT,
            message,
        }
    }

    pub(crate) fn wrong_usage(message: String) -> Self {
        Self {
            status: WRONG_USAGE,
            message,
        }
    }
}

//! The operating-system user that runs the server: the current one, or a less privileged one instead of root.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use nix::unistd::{User, geteuid};

use crate::Error;

/// The user that owns the server's processes and files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OsUser {
    uid: u32,
    /// The group to switch to, if this process is root and must switch users.
    switch_group: Option<u32>,
}

impl OsUser {
    pub(crate) fn find() -> Result<Self, Error> {
        let current = geteuid();
        if !current.is_root() {
            return Ok(Self {
                uid: current.as_raw(),
                switch_group: None,
            });
        }
        ["postgres", "nobody"]
            .into_iter()
            .find_map(|name| User::from_name(name).ok().flatten())
            .map(|user| Self {
                uid: user.uid.as_raw(),
                switch_group: Some(user.gid.as_raw()),
            })
            .ok_or(Error::NoOsUser)
    }

    pub(crate) fn uid(self) -> u32 {
        self.uid
    }

    /// Returns `true` if this is another user than the current one, with other permissions.
    pub(crate) fn is_switched(self) -> bool {
        self.switch_group.is_some()
    }

    /// Creates a command that runs as this user, in `directory`, without this process's `PG*` variables and terminal.
    pub(crate) fn command(self, program: impl AsRef<Path>, directory: &Path) -> Command {
        let mut command = Command::new(program.as_ref());
        if let Some(group) = self.switch_group {
            // The group first. The standard library drops supplementary groups when it sets the user.
            command.gid(group).uid(self.uid);
        }
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"PG") {
                command.env_remove(name);
            }
        }
        command
            .current_dir(directory)
            .env("HOME", directory)
            .env("LC_ALL", "C")
            // Ctrl-C must reach only this process; the watchdog stops the server.
            .process_group(0);
        command
    }

    /// Changes the owner of a file to this user.
    pub(crate) fn give(self, path: &Path) -> Result<(), Error> {
        match self.switch_group {
            Some(group) => {
                chown(path, Some(self.uid), Some(group)).map_err(Error::io(format!("change the owner of {path:?}")))
            }
            None => Ok(()),
        }
    }
}

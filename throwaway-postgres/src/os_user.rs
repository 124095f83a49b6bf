//! Whom the server runs as: us, or, since PostgreSQL refuses root, somebody with fewer rights.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use nix::unistd::{User, geteuid};

use crate::Error;

/// The user of the server's processes and files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account {
    uid: u32,
    /// The group to change to, if we are root and have to become this user.
    become_group: Option<u32>,
}

impl Account {
    pub(crate) fn find() -> Result<Self, Error> {
        let us = geteuid();
        if !us.is_root() {
            return Ok(Self {
                uid: us.as_raw(),
                become_group: None,
            });
        }
        ["postgres", "nobody"]
            .into_iter()
            .find_map(|name| User::from_name(name).ok().flatten())
            .map(|user| Self {
                uid: user.uid.as_raw(),
                become_group: Some(user.gid.as_raw()),
            })
            .ok_or(Error::NoAccount)
    }

    pub(crate) fn uid(self) -> u32 {
        self.uid
    }

    /// Whether files and programs are reached with other rights than our own.
    pub(crate) fn is_another(self) -> bool {
        self.become_group.is_some()
    }

    /// A command that runs as this user, in `directory`, unaware of our PostgreSQL settings and terminal.
    pub(crate) fn command(self, program: impl AsRef<Path>, directory: &Path) -> Command {
        let mut command = Command::new(program.as_ref());
        if let Some(group) = self.become_group {
            // In this order; the standard library drops supplementary groups along with the user.
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
            // Ctrl-C is for us; the watchdog sees to the rest.
            .process_group(0);
        command
    }

    /// Gives a file of ours to this user.
    pub(crate) fn give(self, path: &Path) -> Result<(), Error> {
        match self.become_group {
            Some(group) => chown(path, Some(self.uid), Some(group))
                .map_err(Error::io(format!("give {path:?} to the server's user"))),
            None => Ok(()),
        }
    }
}

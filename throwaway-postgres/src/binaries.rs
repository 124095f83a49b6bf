//! Finds PostgreSQL's programs.

use std::ffi::OsStr;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Error;
use crate::command::run;
use crate::os_user::OsUser;
use crate::shared_dir::SharedDir;

/// The environment variable that names the directory of the programs.
const VARIABLE: &str = "DOORBELL_PG_BIN";
/// Debian and its derivatives keep a directory for each major version here.
const DEBIAN: &str = "/usr/lib/postgresql";

/// An installation of PostgreSQL.
#[derive(Clone, Debug)]
pub(crate) struct Binaries {
    directory: PathBuf,
    /// The output of `postgres --version`.
    version: String,
}

impl Binaries {
    /// Finds the installation in `chosen`, or the one that the environment variable names, or the newest one.
    pub(crate) fn find(chosen: Option<&Path>, os_user: OsUser, shared_dir: &SharedDir) -> Result<Self, Error> {
        let chosen = chosen
            .map(Path::to_owned)
            .or_else(|| std::env::var_os(VARIABLE).map(PathBuf::from));
        let candidates = match chosen {
            Some(directory) => vec![std::path::absolute(&directory).unwrap_or(directory)],
            None => installed(),
        };
        let complete = |directory: &&PathBuf| {
            ["initdb", "postgres"]
                .iter()
                .all(|program| directory.join(program).is_file())
        };
        let Some(directory) = candidates.iter().find(complete).cloned() else {
            return Err(Error::MissingBinary {
                program: "postgres",
                searched: candidates,
            });
        };
        let directory = accessible(directory, os_user, shared_dir)?;
        let printed = run(
            os_user
                .command(directory.join("postgres"), shared_dir.path())
                .arg("--version"),
            None,
        )?;
        Ok(Self {
            directory,
            version: String::from_utf8_lossy(&printed).trim().to_owned(),
        })
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// Returns the major version, such as 15 for 15.4.
    pub(crate) fn major(&self) -> u32 {
        self.version
            .split_whitespace()
            .find_map(|word| word.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok())
            .unwrap_or(0)
    }

    /// Returns a program of this installation.
    pub(crate) fn program(&self, name: &'static str) -> Result<PathBuf, Error> {
        let path = self.directory.join(name);
        if path.is_file() {
            return Ok(path);
        }
        Err(Error::MissingBinary {
            program: name,
            searched: vec![self.directory.clone()],
        })
    }

    /// Returns psql of this installation, or any other one: psql works with all server versions.
    pub(crate) fn psql(&self) -> Result<PathBuf, Error> {
        self.program("psql").or_else(|_| any_psql())
    }
}

/// Returns any installed psql.
pub(crate) fn any_psql() -> Result<PathBuf, Error> {
    let searched = installed();
    match searched
        .iter()
        .map(|directory| directory.join("psql"))
        .find(|path| path.is_file())
    {
        Some(path) => Ok(path),
        None => Err(Error::MissingBinary {
            program: "psql",
            searched,
        }),
    }
}

/// Returns the directories to search, newest version first.
fn installed() -> Vec<PathBuf> {
    let mut versions: Vec<(u32, PathBuf)> = fs::read_dir(DEBIAN)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .collect();
    versions.sort_by_key(|&(version, _)| std::cmp::Reverse(version));
    let path = std::env::var_os("PATH").unwrap_or_default();
    versions
        .into_iter()
        .map(|(_, path)| path)
        .chain(std::env::split_paths(&path))
        .collect()
}

/// Returns `directory`, or that of a copy if the server's user cannot enter a parent directory, such as root's home.
fn accessible(directory: PathBuf, os_user: OsUser, shared_dir: &SharedDir) -> Result<PathBuf, Error> {
    let is_public =
        |path: &Path| fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o005 == 0o005);
    let directory = directory
        .canonicalize()
        .map_err(Error::io(format!("find {directory:?}")))?;
    if !os_user.is_switched()
        || directory
            .ancestors()
            .all(|path| is_public(path) || path == Path::new("/"))
    {
        return Ok(directory);
    }
    let (Some(root), Some(name)) = (directory.parent(), directory.file_name()) else {
        return Ok(directory);
    };
    copy_installation(root, shared_dir, os_user).map(|copy| copy.join(name))
}

fn copy_installation(root: &Path, shared_dir: &SharedDir, os_user: OsUser) -> Result<PathBuf, Error> {
    let stamp = fs::metadata(root.join("bin/postgres"))
        .and_then(|metadata| metadata.modified())
        .ok();
    let mut hasher = DefaultHasher::new();
    (root, stamp).hash(&mut hasher);
    let copy = shared_dir.path().join(format!("binaries-{:016x}", hasher.finish()));
    let _lock = shared_dir.lock("binaries")?;
    if !copy.exists() {
        let partial = shared_dir.path().join("binaries-partial");
        fs::remove_dir_all(&partial).ok();
        let mut command = Command::new("cp");
        run(
            command.args([OsStr::new("-rL"), root.as_os_str(), partial.as_os_str()]),
            None,
        )?;
        run(Command::new("chmod").arg("-R").arg("a+rX").arg(&partial), None)?;
        os_user.give(&partial)?;
        fs::rename(&partial, &copy).map_err(Error::io(format!("rename to {copy:?}")))?;
    }
    Ok(copy)
}

//! A directory for a server, and a small process that cleans it up after this process has ended.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use crate::Error;
use crate::os_user::OsUser;

/// The script of the watchdog. It waits for the end of its standard input, which comes with the end of this process at the
/// latest. Then it stops every process whose working directory is inside the directory, and removes the directory. It runs as the
/// server's user, so it cannot affect other users.
const SCRIPT: &str = r#"
trap '' HUP INT TERM
cat >/dev/null
processes() { find /proc/[0-9]*/cwd -maxdepth 0 -lname "$1*" 2>/dev/null | cut -d/ -f3; }
signal() { for pid in $(processes "$2"); do [ "$pid" = $$ ] || kill -s "$1" "$pid" 2>/dev/null; done; }
cd /
signal CONT "$1"
signal QUIT "$1"
tries=0
while [ -n "$(processes "$1")" ]; do
    tries=$((tries + 1))
    if [ $tries -gt 100 ]; then signal KILL "$1"; fi
    if [ $tries -gt 120 ]; then break; fi
    sleep 0.05
done
rm -rf "$1"
"#;

/// A directory that is removed, with the processes inside it, when this process ends.
#[derive(Debug)]
pub(crate) struct WatchedDir {
    path: PathBuf,
    watchdog: Child,
}

impl WatchedDir {
    /// Creates an empty directory that belongs to `os_user`.
    pub(crate) fn create(os_user: OsUser) -> Result<Self, Error> {
        let path = tempfile::Builder::new()
            .prefix("pg-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir()
            .map_err(Error::io("create a temporary directory"))?
            .keep();
        let watchdog = os_user
            .give(&path)
            .and_then(|()| {
                os_user
                    .command("/bin/sh", Path::new("/"))
                    .args(["-c", SCRIPT, "throwaway-postgres-watchdog"])
                    .arg(&path)
                    .stdin(Stdio::piped())
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .spawn()
                    .map_err(Error::io("start the watchdog"))
            })
            .inspect_err(|_| {
                fs::remove_dir_all(&path).ok();
            })?;
        Ok(Self { path, watchdog })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for WatchedDir {
    fn drop(&mut self) {
        // `wait` closes its standard input.
        self.watchdog.wait().ok();
        fs::remove_dir_all(&self.path).ok();
    }
}

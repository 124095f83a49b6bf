//! A process that outlives us by a moment, to clear away what we leave behind.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use crate::Error;
use crate::os_user::Account;

/// Waits for the end of its standard input, which comes with our end at the latest; then ends every process that works inside
/// the directory and removes it. Running as the server's user, it cannot hurt anybody else's.
const SCRIPT: &str = r#"
trap '' HUP INT TERM
cat >/dev/null
there() { find /proc/[0-9]*/cwd -maxdepth 0 -lname "$1*" 2>/dev/null | cut -d/ -f3; }
signal() { for pid in $(there "$2"); do [ "$pid" = $$ ] || kill -s "$1" "$pid" 2>/dev/null; done; }
cd /
signal CONT "$1"
signal QUIT "$1"
tries=0
while [ -n "$(there "$1")" ]; do
    tries=$((tries + 1))
    if [ $tries -gt 100 ]; then signal KILL "$1"; fi
    if [ $tries -gt 120 ]; then break; fi
    sleep 0.05
done
rm -rf "$1"
"#;

/// A directory whose files and processes end with us.
#[derive(Debug)]
pub(crate) struct Home {
    path: PathBuf,
    watchdog: Child,
}

impl Home {
    /// A new, empty directory that belongs to the account.
    pub(crate) fn create(account: Account) -> Result<Self, Error> {
        let path = tempfile::Builder::new()
            .prefix("pg-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir()
            .map_err(Error::io("create a temporary directory"))?
            .keep();
        let watchdog = account
            .give(&path)
            .and_then(|()| {
                account
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

impl Drop for Home {
    fn drop(&mut self) {
        // Waiting closes its standard input.
        self.watchdog.wait().ok();
        fs::remove_dir_all(&self.path).ok();
    }
}

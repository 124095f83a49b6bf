//! The directory that the servers of one user share.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::Error;
use crate::os_user::Account;

/// Templates, copied binaries and locks on ports.
#[derive(Clone, Debug)]
pub(crate) struct Base(PathBuf);

impl Base {
    pub(crate) fn open(account: Account) -> Result<Self, Error> {
        let path = std::env::temp_dir().join(format!("throwaway-postgres-{}", account.uid()));
        match fs::create_dir(&path) {
            Ok(()) => {
                fs::set_permissions(&path, Permissions::from_mode(0o700))
                    .map_err(Error::io(format!("protect {path:?}")))?;
                account.give(&path)?;
            }
            // Another process may have made it just now, and be about to give it to the account.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                let metadata = fs::symlink_metadata(&path).map_err(Error::io(format!("look at {path:?}")))?;
                let ours = metadata.uid() == account.uid() || account.is_another() && metadata.uid() == 0;
                if !metadata.is_dir() || !ours {
                    return Err(Error::ForeignDirectory { path });
                }
                account.give(&path)?;
            }
            Err(error) => return Err(Error::io(format!("create {path:?}"))(error)),
        }
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Waits for the lock of this name, which lasts as long as the file is open.
    pub(crate) fn lock(&self, name: &str) -> Result<File, Error> {
        let file = self.lock_file(name)?;
        file.lock().map_err(Error::io(format!("lock {name}")))?;
        Ok(file)
    }

    /// The lock of this name, unless somebody has it.
    pub(crate) fn try_lock(&self, name: &str) -> Result<Option<File>, Error> {
        let file = self.lock_file(name)?;
        Ok(file.try_lock().is_ok().then_some(file))
    }

    fn lock_file(&self, name: &str) -> Result<File, Error> {
        let path = self.0.join(format!("{name}.lock"));
        // Reading is enough to lock, and a file that another user of the directory made may not be ours to write.
        File::open(&path)
            .or_else(|_| File::options().read(true).append(true).create(true).open(&path))
            .map_err(Error::io(format!("open {path:?}")))
    }
}

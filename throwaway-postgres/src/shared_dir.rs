//! The directory that all servers of one user share.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::Error;
use crate::os_user::OsUser;

/// The shared directory, which contains templates, copied binaries and port locks.
#[derive(Clone, Debug)]
pub(crate) struct SharedDir(PathBuf);

impl SharedDir {
    pub(crate) fn open(os_user: OsUser) -> Result<Self, Error> {
        let path = std::env::temp_dir().join(format!("throwaway-postgres-{}", os_user.uid()));
        match fs::create_dir(&path) {
            Ok(()) => {
                fs::set_permissions(&path, Permissions::from_mode(0o700))
                    .map_err(Error::io(format!("protect {path:?}")))?;
                os_user.give(&path)?;
            }
            // Another process may have just created it, and not yet changed its owner.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                let metadata =
                    fs::symlink_metadata(&path).map_err(Error::io(format!("read the metadata of {path:?}")))?;
                let is_ours = metadata.uid() == os_user.uid() || os_user.is_switched() && metadata.uid() == 0;
                if !metadata.is_dir() || !is_ours {
                    return Err(Error::ForeignDirectory { path });
                }
                os_user.give(&path)?;
            }
            Err(error) => return Err(Error::io(format!("create {path:?}"))(error)),
        }
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Waits for the lock of this name. It is held until the file is closed.
    pub(crate) fn lock(&self, name: &str) -> Result<File, Error> {
        let file = self.lock_file(name)?;
        file.lock().map_err(Error::io(format!("lock {name}")))?;
        Ok(file)
    }

    /// Takes the lock of this name, unless it is held.
    pub(crate) fn try_lock(&self, name: &str) -> Result<Option<File>, Error> {
        let file = self.lock_file(name)?;
        Ok(file.try_lock().is_ok().then_some(file))
    }

    fn lock_file(&self, name: &str) -> Result<File, Error> {
        let path = self.0.join(format!("{name}.lock"));
        // Read access is enough to lock, and another user may own the file.
        File::open(&path)
            .or_else(|_| File::options().read(true).append(true).create(true).open(&path))
            .map_err(Error::io(format!("open {path:?}")))
    }
}

//! Writes this crate's part of `postgresql.conf`.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::Error;
use crate::builder::Builder;
use crate::os_user::OsUser;

/// A file next to `postgresql.conf`, which includes it. Settings on the command line would override `ALTER SYSTEM`.
const FILE: &str = "throwaway.conf";

/// Returns the line to append to `postgresql.conf`.
pub(crate) fn include() -> String {
    format!("\ninclude '{FILE}'\n")
}

/// Writes the settings of `builder` into a data directory.
pub(crate) fn write(builder: &Builder, data: &Path, port: u16, sockets: &Path, os_user: OsUser) -> Result<(), Error> {
    let mut settings: Vec<(&str, String)> = vec![
        ("listen_addresses", "127.0.0.1".to_owned()),
        ("port", port.to_string()),
        ("unix_socket_directories", sockets.display().to_string()),
        // In the data directory: a killed server would leave it behind in /dev/shm.
        ("dynamic_shared_memory_type", "mmap".to_owned()),
        ("logging_collector", "off".to_owned()),
        ("lc_messages", "C".to_owned()),
    ];
    if !builder.durable {
        settings.extend([("fsync", "off".to_owned()), ("full_page_writes", "off".to_owned())]);
    }
    if let Some(certificate) = &builder.certificate {
        put(&data.join("server.crt"), &certificate.chain, os_user)?;
        put(&data.join("server.key"), &certificate.key, os_user)?;
        settings.push(("ssl", "on".to_owned()));
    }
    if builder.tls_only {
        let path = data.join("pg_hba.conf");
        let rules = fs::read_to_string(&path).map_err(Error::io(format!("read {path:?}")))?;
        put(&path, &rules.replace("\nhost ", "\nhostssl "), os_user)?;
    }
    settings.extend(
        builder
            .settings
            .iter()
            .map(|(name, value)| (name.as_str(), value.clone())),
    );
    let text: String = settings
        .iter()
        .map(|(name, value)| format!("{name} = '{}'\n", value.replace('\\', "\\\\").replace('\'', "''")))
        .collect();
    put(&data.join(FILE), &text, os_user)
}

/// Writes a file that only the server's user can read.
pub(crate) fn put(path: &Path, text: &str, os_user: OsUser) -> Result<(), Error> {
    fs::write(path, text)
        .and_then(|()| fs::set_permissions(path, Permissions::from_mode(0o600)))
        .map_err(Error::io(format!("write {path:?}")))?;
    os_user.give(path)
}

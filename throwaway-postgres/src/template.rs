//! Keeps an initialised data directory for each kind of server, from which new ones are copied, because `initdb` takes longer
//! than everything else together.

use std::fs::{self, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::Path;

use crate::Error;
use crate::binaries::Binaries;
use crate::builder::Builder;
use crate::command::run;
use crate::config;
use crate::os_user::OsUser;
use crate::shared_dir::SharedDir;

/// The user that `initdb` creates.
pub(crate) const USER: &str = "postgres";

/// Creates a data directory at `data`, whose parent must belong to `os_user`.
pub(crate) fn create_data(
    builder: &Builder,
    binaries: &Binaries,
    os_user: OsUser,
    shared_dir: &SharedDir,
    data: &Path,
) -> Result<(), Error> {
    let encoding = builder.encoding.as_deref().unwrap_or("UTF8");
    let locale = builder
        .locale
        .as_deref()
        .unwrap_or(if encoding == "UTF8" { "C.UTF-8" } else { "C" });
    let mut hasher = DefaultHasher::new();
    (
        binaries.directory(),
        binaries.version(),
        encoding,
        locale,
        &builder.password,
        1,
    )
        .hash(&mut hasher);
    let name = format!("template-{:016x}", hasher.finish());
    let template = shared_dir.path().join(&name);

    let lock = shared_dir.lock(&name)?;
    if !template.exists() {
        let partial = shared_dir.path().join(format!("{name}-partial"));
        fs::remove_dir_all(&partial).ok();
        let mut command = os_user.command(binaries.program("initdb")?, shared_dir.path());
        command
            .arg("--pgdata")
            .arg(&partial)
            .args(["--no-sync", "--username", USER])
            .arg(format!("--encoding={encoding}"))
            .arg(format!("--locale={locale}"));
        match &builder.password {
            Some(password) => {
                let file = shared_dir.path().join(format!("{name}-password"));
                config::put(&file, password, os_user)?;
                let outcome = run(command.arg("--auth=scram-sha-256").arg("--pwfile").arg(&file), None);
                fs::remove_file(&file).ok();
                outcome?;
            }
            None => {
                run(command.arg("--auth=trust"), None)?;
            }
        }
        let file = partial.join("postgresql.conf");
        OpenOptions::new()
            .append(true)
            .open(&file)
            .and_then(|mut file| file.write_all(config::include().as_bytes()))
            .map_err(Error::io(format!("append to {file:?}")))?;
        fs::rename(&partial, &template).map_err(Error::io(format!("rename to {template:?}")))?;
    }
    drop(lock);
    run(
        os_user
            .command("cp", shared_dir.path())
            .args(["-a", "--reflink=auto"])
            .arg(&template)
            .arg(data),
        None,
    )?;
    Ok(())
}

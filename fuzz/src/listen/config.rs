//! `doorbell::listen::config` without the encryption itself, which would read whatever files the text names.

#[path = "../../../src/pg/config/ssl_mode.rs"]
mod mode;
#[path = "../../../src/pg/config/parse.rs"]
mod text;

use self::mode::{Certificates, Mode};
use super::error::ListenError;

pub(crate) struct ListenConfig {
    pub(crate) postgres: tokio_postgres::Config,
    pub(crate) tls: Tls,
}

impl ListenConfig {
    pub(crate) fn parse(text: &str) -> Result<Self, ListenError> {
        text::parse(text)
    }

    fn new(postgres: tokio_postgres::Config, tls: Tls) -> Self {
        Self { postgres, tls }
    }
}

/// What the encryption would be built from.
#[derive(Debug)]
pub(crate) struct Tls {
    mode: Mode,
    certificates: Certificates,
}

impl Tls {
    pub(crate) fn is_strict(&self) -> bool {
        matches!(self.mode, Mode::VerifyCa | Mode::VerifyFull)
    }
}

impl Mode {
    fn tls(self, certificates: &Certificates) -> Result<Tls, ListenError> {
        Ok(Tls {
            mode: self,
            certificates: certificates.clone(),
        })
    }
}

//! libpq's words for encryption.

use tokio_postgres::config::SslMode;

use super::ConfigError;

/// libpq's `sslmode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Disable,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

impl Mode {
    pub(super) fn parse(text: &str) -> Result<Self, ConfigError> {
        Ok(match text {
            "disable" => Self::Disable,
            "allow" | "prefer" => Self::Prefer,
            "require" => Self::Require,
            "verify-ca" => Self::VerifyCa,
            "verify-full" => Self::VerifyFull,
            _ => {
                return Err(ConfigError(format!(
                    "sslmode {text:?} is none of disable, allow, prefer, require, verify-ca, verify-full"
                )));
            }
        })
    }

    /// What tokio-postgres calls it; verification is a matter of [`Tls`](super::Tls).
    pub(super) fn negotiation(self) -> SslMode {
        match self {
            Self::Disable => SslMode::Disable,
            Self::Prefer => SslMode::Prefer,
            Self::Require | Self::VerifyCa | Self::VerifyFull => SslMode::Require,
        }
    }
}

/// Files, or PEM texts themselves.
#[derive(Clone, Debug, Default)]
pub(super) struct Certificates {
    pub(super) root: Option<String>,
    pub(super) client: Option<String>,
    pub(super) client_key: Option<String>,
}

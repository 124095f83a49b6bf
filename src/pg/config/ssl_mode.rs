//! libpq's `sslmode` parameter, and the files that belong to it.

use super::ConfigError;

/// libpq's `sslmode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SslMode {
    Disable,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

impl SslMode {
    pub(super) fn parse(text: &str) -> Result<Self, ConfigError> {
        Ok(match text {
            "disable" => Self::Disable,
            "allow" | "prefer" => Self::Prefer,
            "require" => Self::Require,
            "verify-ca" => Self::VerifyCa,
            "verify-full" => Self::VerifyFull,
            _ => {
                return Err(ConfigError(format!(
                    "sslmode {text:?} is not one of disable, allow, prefer, require, verify-ca, verify-full"
                )));
            }
        })
    }

    /// Returns tokio-postgres's mode. [`Tls`](super::Tls) does the verification.
    pub(super) fn negotiation(self) -> tokio_postgres::config::SslMode {
        match self {
            Self::Disable => tokio_postgres::config::SslMode::Disable,
            Self::Prefer => tokio_postgres::config::SslMode::Prefer,
            Self::Require | Self::VerifyCa | Self::VerifyFull => tokio_postgres::config::SslMode::Require,
        }
    }
}

/// Certificates and a key, each a file name or the PEM text itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Certificates {
    pub(super) root: Option<String>,
    pub(super) client: Option<String>,
    pub(super) client_key: Option<String>,
}

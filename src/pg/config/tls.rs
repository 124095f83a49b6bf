//! TLS with rustls, with libpq's modes.

use core::fmt;
use std::sync::{Arc, LazyLock};

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::ConfigError;
use super::ssl_mode::{Certificates, SslMode};
use super::verify::{ChainOnly, NoVerification};

/// Chosen here, independently of the process's default provider.
static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| Arc::new(rustls::crypto::ring::default_provider()));

/// The way to encrypt connections, if the connection options require or prefer it.
///
/// ```
/// use doorbell::listen::{ListenConfig, ListenMultiplexer, Tls};
///
/// let mut config = tokio_postgres::Config::new();
/// config.host("db.internal").user("app").ssl_mode(tokio_postgres::config::SslMode::Require);
/// let builder = ListenMultiplexer::builder().config(ListenConfig::new(config, Tls::unverified()));
/// ```
#[derive(Clone)]
pub struct Tls {
    connector: MakeRustlsConnect,
    verification: &'static str,
}

impl Tls {
    /// Creates a setting that encrypts without verifying the server's certificate.
    ///
    /// ```
    /// use doorbell::listen::Tls;
    ///
    /// let tls = Tls::unverified();
    /// ```
    pub fn unverified() -> Self {
        static UNVERIFIED: LazyLock<Tls> = LazyLock::new(|| {
            let built = Verification::None.build(&Certificates::default());
            built.expect("no certificates to read, and the provider supports the default protocol versions")
        });
        UNVERIFIED.clone()
    }

    /// Creates a setting that encrypts and verifies according to `config`.
    ///
    /// ```
    /// use doorbell::listen::Tls;
    /// use std::sync::Arc;
    ///
    /// let provider = Arc::new(rustls::crypto::ring::default_provider());
    /// let config = rustls::ClientConfig::builder_with_provider(provider)
    ///     .with_safe_default_protocol_versions()?
    ///     .with_root_certificates(rustls::RootCertStore::empty())
    ///     .with_no_client_auth();
    /// let tls = Tls::from_rustls(config);
    /// # Ok::<_, rustls::Error>(())
    /// ```
    pub fn from_rustls(config: ClientConfig) -> Self {
        Self {
            connector: MakeRustlsConnect::new(config),
            verification: "custom",
        }
    }

    pub(crate) fn connector(&self) -> MakeRustlsConnect {
        self.connector.clone()
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("verification", &self.verification).finish()
    }
}

impl SslMode {
    pub(super) fn tls(self, certificates: &Certificates) -> Result<Tls, ConfigError> {
        let verification = match self {
            // As in libpq: with a root certificate, `require` means `verify-ca`.
            Self::Require if certificates.root.is_some() => Verification::Chain,
            Self::Disable | Self::Prefer | Self::Require => Verification::None,
            Self::VerifyCa => Verification::Chain,
            Self::VerifyFull => Verification::ChainAndName,
        };
        verification.build(certificates)
    }
}

#[derive(Clone, Copy)]
enum Verification {
    None,
    Chain,
    ChainAndName,
}

impl Verification {
    fn build(self, certificates: &Certificates) -> Result<Tls, ConfigError> {
        let builder = ClientConfig::builder_with_provider(PROVIDER.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| ConfigError(format!("TLS: {error}")))?;
        let (builder, verification) = match self {
            Self::None => {
                let verifier = Arc::new(NoVerification::new(PROVIDER.clone()));
                (builder.dangerous().with_custom_certificate_verifier(verifier), "none")
            }
            Self::Chain => {
                let verifier = ChainOnly::new(roots(certificates)?, PROVIDER.clone())?;
                (
                    builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)),
                    "chain",
                )
            }
            Self::ChainAndName => (builder.with_root_certificates(roots(certificates)?), "chain and name"),
        };
        let config = match (&certificates.client, &certificates.client_key) {
            (None, None) => builder.with_no_client_auth(),
            (Some(chain), Some(key)) => {
                let chain = read_certificates("sslcert", chain)?;
                let key = PrivateKeyDer::from_pem_slice(&read("sslkey", key)?)
                    .map_err(|error| ConfigError(format!("sslkey contains no private key: {error}")))?;
                let with_client = builder.with_client_auth_cert(chain, key);
                with_client.map_err(|error| ConfigError(format!("sslcert and sslkey: {error}")))?
            }
            _ => return Err(ConfigError("sslcert and sslkey must be set together".to_owned())),
        };
        Ok(Tls {
            connector: MakeRustlsConnect::new(config),
            verification,
        })
    }
}

fn roots(certificates: &Certificates) -> Result<RootCertStore, ConfigError> {
    let mut roots = RootCertStore::empty();
    match certificates.root.as_deref() {
        None | Some("system") => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(root) => {
            for certificate in read_certificates("sslrootcert", root)? {
                let added = roots.add(certificate);
                added.map_err(|error| ConfigError(format!("sslrootcert: {error}")))?;
            }
        }
    }
    Ok(roots)
}

fn read_certificates(what: &str, source: &str) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let pem = read(what, source)?;
    let certificates = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) => Err(ConfigError(format!("{what} contains no PEM certificate"))),
        Err(error) => Err(ConfigError(format!("{what}: {error}"))),
    }
}

/// Whether this is the PEM text itself, not the name of a file.
pub(super) fn is_pem(source: &str) -> bool {
    source.trim_start().starts_with("-----BEGIN")
}

/// Returns the PEM text itself, or the content of the file.
fn read(what: &str, source: &str) -> Result<Vec<u8>, ConfigError> {
    if is_pem(source) {
        return Ok(source.as_bytes().to_vec());
    }
    std::fs::read(source).map_err(|error| ConfigError(format!("cannot read {what} {source:?}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(mode: SslMode, certificates: &Certificates) -> String {
        match mode.tls(certificates) {
            Err(ConfigError(what)) => what,
            other => panic!("expected an error, got {other:?}"),
        }
    }

    #[test]
    fn each_ssl_mode_has_its_verification() {
        let pem = rcgen::generate_simple_self_signed(["h".to_owned()]).unwrap().cert.pem();
        let with_root = Certificates {
            root: Some(pem),
            ..Certificates::default()
        };
        for (mode, without, with) in [
            (SslMode::Prefer, "none", "none"),
            (SslMode::Require, "none", "chain"),
            (SslMode::VerifyCa, "chain", "chain"),
            (SslMode::VerifyFull, "chain and name", "chain and name"),
        ] {
            assert_eq!(mode.tls(&Certificates::default()).unwrap().verification, without);
            assert_eq!(mode.tls(&with_root).unwrap().verification, with);
        }
    }

    #[test]
    fn a_client_certificate_needs_its_key() {
        let certified = rcgen::generate_simple_self_signed(["client".to_owned()]).unwrap();
        let other = rcgen::generate_simple_self_signed(["other".to_owned()]).unwrap();
        let client = Some(certified.cert.pem());
        let with_key = |key| Certificates {
            client: client.clone(),
            client_key: key,
            ..Certificates::default()
        };
        assert!(
            SslMode::Require
                .tls(&with_key(Some(certified.signing_key.serialize_pem())))
                .is_ok()
        );
        assert!(refused(SslMode::Require, &with_key(None)).contains("set together"));
        assert!(refused(SslMode::Require, &with_key(Some(certified.cert.pem()))).contains("no private key"));
        let wrong = refused(SslMode::Require, &with_key(Some(other.signing_key.serialize_pem())));
        assert!(wrong.contains("sslcert and sslkey"), "{wrong}");
    }
}

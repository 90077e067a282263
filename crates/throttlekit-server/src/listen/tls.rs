//! Certificates, reloaded without a restart.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use sha2::{Digest, Sha256};
use throttlekit::rate::Timestamp;
use tokio_rustls::TlsAcceptor;

use super::Speaks;
use super::certificate_expiry::expires;
use crate::audit::AUDIT;
use crate::files::read_regular;
use crate::server_error::ServerError;

/// Maximum size of a certificate file: 1 MiB.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The files of `--tls-cert`, `--tls-key` and `--tls-client-ca`, as far as given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Our certificate and its chain, in PEM.
    pub cert: Option<PathBuf>,
    /// Its private key, in PEM.
    pub key: Option<PathBuf>,
    /// CA certificates of clients, in PEM. If set, client certificates are required.
    pub client_ca: Option<PathBuf>,
}

/// The current TLS configuration. Cheap to clone; all clones switch to new certificates together.
#[derive(Clone)]
pub struct Tls {
    shared: Arc<Shared>,
    /// True if client certificates are required here, given that there are CA certificates for them.
    asks: bool,
}

struct Shared {
    files: Files,
    now: ArcSwap<Loaded>,
}

#[derive(Clone)]
struct Files {
    cert: PathBuf,
    key: PathBuf,
    client_ca: Option<PathBuf>,
}

struct Loaded {
    /// Digest of all that was read, to detect changes.
    digest: [u8; 32],
    /// Expiry of the first certificate of the chain.
    expires: Option<Timestamp>,
    asking: Configs,
    /// Configurations that require no client certificate.
    unasking: Configs,
}

struct Configs {
    http2: Arc<ServerConfig>,
    http: Arc<ServerConfig>,
    /// Without ALPN, which clients of Redis do not send.
    resp: Arc<ServerConfig>,
}

impl Configs {
    fn of(config: &ServerConfig) -> Self {
        let with = |protocols: &[&[u8]]| {
            let mut config = config.clone();
            config.alpn_protocols = protocols.iter().map(|&name| name.to_vec()).collect();
            Arc::new(config)
        };
        Self { http2: with(&[b"h2"]), http: with(&[b"h2", b"http/1.1"]), resp: with(&[]) }
    }
}

impl Tls {
    /// Reads the files. No files: no TLS. An incomplete set is an error that names the missing files: a server that was
    /// meant to use TLS does not start without it.
    pub fn load(files: &TlsFiles) -> Result<Option<Self>, ServerError> {
        let Some(files) = Files::whole(files)? else { return Ok(None) };
        let now = ArcSwap::from_pointee(files.load()?);
        Ok(Some(Self { shared: Arc::new(Shared { files, now }), asks: true }))
    }

    /// Returns the same certificate for listeners that require none of their clients, such as for probes that have
    /// none.
    pub fn without_client_certificates(&self) -> Self {
        Self { asks: false, ..self.clone() }
    }

    /// Checks whether clients must present a certificate.
    pub fn demands_certificates(&self) -> bool {
        self.asks && self.shared.files.client_ca.is_some()
    }

    /// Returns the instant at which our certificate expires, if it has one.
    pub fn expires(&self) -> Option<Timestamp> {
        self.shared.now.load().expires
    }

    /// Reads the files again. Returns whether something changed; on an error the current configuration stays.
    pub fn reload(&self) -> Result<bool, ServerError> {
        let loaded = self.shared.files.load()?;
        let is_new = loaded.digest != self.shared.now.load().digest;
        if is_new {
            self.shared.now.store(Arc::new(loaded));
        }
        Ok(is_new)
    }

    /// Reads the files at this interval, for as long as it is polled.
    pub async fn follow(&self, every: Duration) {
        // An error is logged once, not at each check.
        let mut told = None;
        loop {
            tokio::time::sleep(every).await;
            let reloaded = self.reload_aside().await.map_err(|error| error.to_string());
            match &reloaded {
                Ok(true) => {
                    let expires = self.expires().map(|at| at.as_millis_ceil() / 1_000);
                    tracing::info!(target: AUDIT, expires, "TLS certificates loaded");
                }
                Err(error) if told.as_ref() != Some(error) => {
                    tracing::error!(%error, "TLS reload failed, previous certificates stay in use");
                }
                _ => {}
            }
            told = reloaded.err();
        }
    }

    /// Reads the files again now, and logs the result. Returns whether something changed, valid or not.
    pub async fn reload_and_log(&self) -> bool {
        let reloaded = self.reload_aside().await;
        match &reloaded {
            Ok(true) => tracing::info!("TLS certificates reloaded"),
            Ok(false) => {}
            Err(error) => {
                tracing::error!(%error, "TLS reload failed, previous certificates stay in use");
            }
        }
        !matches!(reloaded, Ok(false))
    }

    /// Reloads off the threads that serve: the files may be on a disk that hangs.
    async fn reload_aside(&self) -> Result<bool, ServerError> {
        let this = self.clone();
        let reloaded = tokio::task::spawn_blocking(move || this.reload()).await;
        reloaded.unwrap_or_else(|error| Err(ServerError::tls(error)))
    }

    pub(super) fn acceptor(&self, speaks: Speaks) -> TlsAcceptor {
        let now = self.shared.now.load();
        let configs = if self.asks { &now.asking } else { &now.unasking };
        TlsAcceptor::from(match speaks {
            Speaks::Http2 => configs.http2.clone(),
            Speaks::Http => configs.http.clone(),
            Speaks::Resp => configs.resp.clone(),
        })
    }
}

throttlekit::debug_fields!([] Tls, |it| demands_certificates = it.demands_certificates());

impl Files {
    fn whole(given: &TlsFiles) -> Result<Option<Self>, ServerError> {
        let TlsFiles { cert, key, client_ca } = given.clone();
        let missing = match (cert, key) {
            (Some(cert), Some(key)) => return Ok(Some(Self { cert, key, client_ca })),
            (None, None) if client_ca.is_none() => return Ok(None),
            (Some(_), None) => "--tls-cert is given and --tls-key is missing",
            (None, Some(_)) => "--tls-key is given and --tls-cert is missing",
            (None, None) => "--tls-client-ca is given and --tls-cert and --tls-key are missing",
        };
        Err(ServerError::tls(format!("{missing}: TLS needs both, and plaintext is never a fallback")))
    }

    fn load(&self) -> Result<Loaded, ServerError> {
        let (cert, key) = (read(&self.cert)?, read(&self.key)?);
        let client_ca = self.client_ca.as_deref().map(read).transpose()?;
        let mut digest = Sha256::new();
        for part in [Some(&cert), Some(&key), client_ca.as_ref()].into_iter().flatten() {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
        let asking = Configs::of(&self.config(&cert, &key, client_ca.as_deref())?);
        let unasking = Configs::of(&self.config(&cert, &key, None)?);
        let expires = certificates(&self.cert, &cert)?.first().and_then(|certificate| expires(certificate));
        Ok(Loaded { digest: digest.finalize().into(), expires, asking, unasking })
    }

    fn config(&self, cert: &[u8], key: &[u8], client_ca: Option<&[u8]>) -> Result<ServerConfig, ServerError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let chain = certificates(&self.cert, cert)?;
        let no_key = |error| format!("{}: no private key in PEM: {error}", self.key.display());
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| ServerError::tls(no_key(error)))?;
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(ServerError::tls)?;
        let builder = match (client_ca, &self.client_ca) {
            (Some(pem), Some(path)) => {
                let wrong =
                    |error: &dyn fmt::Display| ServerError::tls(format!("{}: {error}", path.display()));
                let mut roots = RootCertStore::empty();
                for root in certificates(path, pem)? {
                    roots.add(root).map_err(|error| wrong(&error))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
                builder.with_client_cert_verifier(verifier.build().map_err(|error| wrong(&error))?)
            }
            _ => builder.with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|error| {
            let (cert, key) = (self.cert.display(), self.key.display());
            ServerError::tls(format!("{cert} and {key} do not match: {error}"))
        })?;
        if client_ca.is_some() {
            forbid_resumption(&mut config);
        }
        Ok(config)
    }
}

/// Requires a full handshake of every connection. A resumed session takes the client's certificate from the first one
/// without verifying it again, and each resumption issues a new ticket: an expired certificate would be accepted
/// forever.
fn forbid_resumption(config: &mut ServerConfig) {
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
}

fn read(path: &Path) -> Result<Vec<u8>, ServerError> {
    read_regular(path, FILE_BYTES_MAX).map_err(|error| ServerError::file(path, error))
}

fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, ServerError> {
    let wrong = |why: &dyn fmt::Display| ServerError::tls(format!("{}: {why}", path.display()));
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.map_err(|error| wrong(&format_args!("no certificates in PEM: {error}")))?;
    if all.is_empty() { Err(wrong(&"contains no certificate")) } else { Ok(all) }
}

//! The connector: credentials and TLS of the given address, for every node of the engine.

use redis::io::tcp::TcpSettings;
use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo};
#[cfg(feature = "tls")]
use rustls::crypto::CryptoProvider;
use throttlekit::store::StoreError;

#[derive(Clone, Debug)]
pub(crate) struct Connector {
    template: ConnectionInfo,
    tls: TlsFiles,
}

/// Certificates in PEM.
#[derive(Clone, Default)]
pub(crate) struct TlsFiles {
    /// A custom certificate authority. Default: those of the system.
    pub(crate) ca: Option<Vec<u8>>,
    /// A client certificate and its private key.
    pub(crate) identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl TlsFiles {
    pub(crate) fn is_empty(&self) -> bool {
        self.ca.is_none() && self.identity.is_none()
    }
}

// Without the key.
throttlekit::debug_fields!([] TlsFiles, |it| ca = it.ca.is_some(), identity = it.identity.is_some());

impl Connector {
    /// Creates a connector from an address such as `redis://user:secret@host:6379/0` or `rediss://…`.
    pub(crate) fn new(url: &str, tls: TlsFiles) -> Result<Self, StoreError> {
        let template = url.into_connection_info().map_err(StoreError::misconfigured)?;
        if !cfg!(feature = "tls") && matches!(template.addr(), ConnectionAddr::TcpTls { .. }) {
            return Err(StoreError::misconfigured(
                "rediss:// requires the feature `tls` of throttlekit-redis",
            ));
        }
        #[cfg(feature = "tls")]
        if matches!(template.addr(), ConnectionAddr::TcpTls { .. }) {
            ensure_provider(provider_by_feature())?;
        }
        // Small writes must not wait for each other's acknowledgement.
        let template = template.set_tcp_settings(TcpSettings::default().set_nodelay(true));
        Ok(Self { template, tls })
    }

    pub(crate) fn has_tls(&self) -> bool {
        matches!(self.template.addr(), ConnectionAddr::TcpTls { .. })
    }

    /// Returns `host:port` of the given address.
    pub(crate) fn address(&self) -> String {
        match self.template.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                format!("{host}:{port}")
            }
            other => other.to_string(),
        }
    }

    /// Returns a client for the given address.
    pub(crate) fn seed(&self) -> Result<Client, StoreError> {
        self.client_of(self.template.clone())
    }

    /// Returns a client for `host:port` with the credentials and TLS of the given address.
    pub(crate) fn client(&self, address: &str) -> Result<Client, StoreError> {
        let bad = || {
            StoreError::unavailable(format_args!(
                "the cluster reports a node with the invalid address {address:?}"
            ))
        };
        let (host, port) = address.rsplit_once(':').ok_or_else(bad)?;
        let (host, port) = (host.trim_matches(['[', ']']).to_owned(), port.parse().map_err(|_| bad())?);
        let addr = match self.template.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        self.client_of(self.template.clone().set_addr(addr))
    }

    #[cfg(feature = "tls")]
    fn client_of(&self, info: ConnectionInfo) -> Result<Client, StoreError> {
        if self.tls.is_empty() || !matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
            return Client::open(info).map_err(StoreError::misconfigured);
        }
        let TlsFiles { ca, identity } = self.tls.clone();
        let identity =
            identity.map(|(client_cert, client_key)| redis::ClientTlsConfig { client_cert, client_key });
        let certificates = redis::TlsCertificates { client_tls: identity, root_cert: ca };
        Client::build_with_tls(info, certificates).map_err(StoreError::misconfigured)
    }

    #[cfg(not(feature = "tls"))]
    fn client_of(&self, info: ConnectionInfo) -> Result<Client, StoreError> {
        if !self.tls.is_empty() {
            return Err(StoreError::misconfigured("certificates require the feature `tls`"));
        }
        Client::open(info).map_err(StoreError::misconfigured)
    }
}

/// Ensures that rustls has a crypto provider: the one that the process installed, or else `ours`, which is installed.
///
/// Without this the client panics while connecting if a program links no provider, or two.
#[cfg(feature = "tls")]
fn ensure_provider(ours: Option<CryptoProvider>) -> Result<(), StoreError> {
    if CryptoProvider::get_default().is_some() {
        return Ok(());
    }
    let Some(provider) = ours else {
        return Err(StoreError::misconfigured(
            "no crypto provider for TLS: enable the feature `tls-ring` or `tls-aws-lc-rs` of throttlekit-redis, or call \
             rustls::crypto::CryptoProvider::install_default before connect",
        ));
    };
    // Fails only if another thread has installed one in the meantime, which works as well.
    let _ = provider.install_default();
    Ok(())
}

/// Returns the provider that the features select: ring if both are enabled.
#[cfg(feature = "tls")]
fn provider_by_feature() -> Option<CryptoProvider> {
    #[cfg(feature = "tls-ring")]
    return Some(rustls::crypto::ring::default_provider());
    #[cfg(all(feature = "tls-aws-lc-rs", not(feature = "tls-ring")))]
    return Some(rustls::crypto::aws_lc_rs::default_provider());
    #[cfg(not(any(feature = "tls-ring", feature = "tls-aws-lc-rs")))]
    None
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use super::*;

    #[cfg(any(feature = "tls-ring", feature = "tls-aws-lc-rs"))]
    #[test]
    fn a_missing_crypto_provider_is_an_error_and_not_a_panic() {
        let refused = ensure_provider(None);
        assert!(matches!(refused, Err(StoreError::Misconfigured(why)) if why.contains("crypto provider")));
        assert_eq!(ensure_provider(provider_by_feature()), Ok(()));
        assert_eq!(ensure_provider(None), Ok(()), "one is installed by now");
    }

    /// The stage `tls-providers` links two providers and installs neither.
    #[cfg(not(any(feature = "tls-ring", feature = "tls-aws-lc-rs")))]
    #[tokio::test]
    async fn with_two_crypto_providers_and_none_chosen_connecting_is_an_error() {
        let chosen_by_rustls = std::panic::catch_unwind(|| drop(rustls::ClientConfig::builder()));
        assert!(chosen_by_rustls.is_err(), "rustls chooses by itself unless none is linked, or two are");
        let refused = crate::RedisStore::builder("rediss://127.0.0.1:1").connect().await.map(drop);
        assert!(matches!(refused, Err(StoreError::Misconfigured(why)) if why.contains("crypto provider")));
    }
}

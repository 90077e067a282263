//! The connector: credentials and TLS of the given address, for every node of the engine.

use redis::io::tcp::TcpSettings;
use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo};
use throttlekit::store::StoreError;

#[derive(Clone, Debug)]
pub(crate) struct Connector {
    template: ConnectionInfo,
    /// A certificate authority of one's own, as PEM; the system's otherwise.
    ca: Option<Vec<u8>>,
}

impl Connector {
    /// From an address such as `redis://user:secret@host:6379/0` or `rediss://…`.
    pub(crate) fn new(url: &str, ca: Option<Vec<u8>>) -> Result<Self, StoreError> {
        let template = url.into_connection_info().map_err(StoreError::misconfigured)?;
        if !cfg!(feature = "tls") && matches!(template.addr(), ConnectionAddr::TcpTls { .. }) {
            return Err(StoreError::misconfigured("rediss:// takes the feature `tls` of throttlekit-redis"));
        }
        #[cfg(feature = "tls")]
        if matches!(template.addr(), ConnectionAddr::TcpTls { .. }) {
            provider_or_refuse(|| drop(rustls::ClientConfig::builder()))?;
        }
        // Small writes must not wait for each other's acknowledgement.
        let template = template.set_tcp_settings(TcpSettings::default().set_nodelay(true));
        Ok(Self { template, ca })
    }

    pub(crate) fn has_tls(&self) -> bool {
        matches!(self.template.addr(), ConnectionAddr::TcpTls { .. })
    }

    /// `host:port` of the address given.
    pub(crate) fn address(&self) -> String {
        match self.template.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                format!("{host}:{port}")
            }
            other => other.to_string(),
        }
    }

    /// The node at the address given.
    pub(crate) fn seed(&self) -> Result<Client, StoreError> {
        self.client_of(self.template.clone())
    }

    /// The node at `host:port`, reached like the one given.
    pub(crate) fn client(&self, address: &str) -> Result<Client, StoreError> {
        let bad =
            || StoreError::unavailable(format_args!("it names a node at {address:?}, which is no address"));
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
        let Some(ca) = self.ca.clone().filter(|_| matches!(info.addr(), ConnectionAddr::TcpTls { .. }))
        else {
            return Client::open(info).map_err(StoreError::misconfigured);
        };
        let certificates = redis::TlsCertificates { client_tls: None, root_cert: Some(ca) };
        Client::build_with_tls(info, certificates).map_err(StoreError::misconfigured)
    }

    #[cfg(not(feature = "tls"))]
    fn client_of(&self, info: ConnectionInfo) -> Result<Client, StoreError> {
        if self.ca.is_some() {
            return Err(StoreError::misconfigured("a certificate authority takes the feature `tls`"));
        }
        Client::open(info).map_err(StoreError::misconfigured)
    }
}

/// Sees to it that rustls knows which cryptography to use. Where a program is built with two providers, or with none, and
/// installs neither, `default` panics, as it would in the middle of a connection.
#[cfg(feature = "tls")]
fn provider_or_refuse(default: impl FnOnce() + std::panic::UnwindSafe) -> Result<(), StoreError> {
    if rustls::crypto::CryptoProvider::get_default().is_some() {
        return Ok(());
    }
    std::panic::catch_unwind(default).map_err(|_| {
        StoreError::misconfigured(
            "rustls has no default crypto provider: this program is built with several or none; call \
             rustls::crypto::CryptoProvider::install_default before connect",
        )
    })
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use super::*;

    #[test]
    fn a_missing_crypto_provider_is_an_error_and_not_a_panic() {
        let refused = provider_or_refuse(|| panic!("which of the two?"));
        assert!(matches!(refused, Err(StoreError::Misconfigured(why)) if why.contains("crypto provider")));
        assert_eq!(provider_or_refuse(|| drop(rustls::ClientConfig::builder())), Ok(()));
        assert_eq!(provider_or_refuse(|| panic!("not called: one is installed")), Ok(()));
    }
}

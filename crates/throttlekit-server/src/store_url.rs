//! The URL of a store, as a command line names it.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use throttlekit_postgres::PostgresStore;
use throttlekit_redis::RedisStore;
use tokio::runtime::Handle;

use crate::engine::Backend;
use crate::server_error::ServerError;

/// Location of the store, as given on a command line.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreUrl {
    /// In this process.
    Memory,
    /// One Redis or Valkey.
    Redis(String),
    /// A cluster of them, by some of its nodes.
    RedisCluster(Vec<String>),
    /// PostgreSQL.
    Postgres(String),
}

/// Interval at which idle rows are deleted from PostgreSQL. Any number of servers may sweep.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

impl StoreUrl {
    /// Parses a URL: `memory`, `redis://…` or `rediss://…`, `redis+cluster://a,b,c` or `rediss+cluster://…`,
    /// `postgres://…`. A user name and password before the first node of a cluster apply to all nodes.
    pub fn parse(text: &str) -> Result<Self, ServerError> {
        if text == "memory" {
            return Ok(Self::Memory);
        }
        for scheme in ["redis", "rediss"] {
            if let Some(nodes) = text.strip_prefix(&format!("{scheme}+cluster://")) {
                let (user, nodes) = nodes.rsplit_once('@').map_or(("", nodes), |(user, nodes)| (user, nodes));
                let at = if user.is_empty() { "" } else { "@" };
                return Ok(Self::RedisCluster(
                    nodes.split(',').map(|node| format!("{scheme}://{user}{at}{node}")).collect(),
                ));
            }
        }
        if text.starts_with("redis://") || text.starts_with("rediss://") {
            return Ok(Self::Redis(text.into()));
        }
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Ok(Self::Postgres(text.into()));
        }
        Err(ServerError::StoreUrl)
    }

    /// Returns `memory`, `redis` or `postgres`, which may be shown. A URL may hold a password.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Redis(_) | Self::RedisCluster(_) => "redis",
            Self::Postgres(_) => "postgres",
        }
    }

    /// Creates or upgrades the schema of PostgreSQL. Other stores need none.
    pub async fn migrate(&self) -> Result<(), ServerError> {
        match self {
            Self::Memory | Self::Redis(_) | Self::RedisCluster(_) => Ok(()),
            Self::Postgres(url) => Ok(PostgresStore::builder(url).migrate().await?),
        }
    }

    /// Connects to the store. `deadline` limits each call; default: the store's own. `ca` holds the CA certificates for
    /// the servers, in PEM; default: the public ones. Background tasks run on this runtime: on a thread of their own
    /// they would wait for a processor while the server is busy.
    pub async fn connect(
        &self,
        deadline: Option<Duration>,
        ca: Option<Vec<u8>>,
    ) -> Result<Backend, ServerError> {
        let redis = |mut builder: throttlekit_redis::RedisStoreBuilder| async {
            if let Some(deadline) = deadline {
                builder = builder.deadline(deadline);
            }
            if let Some(pem) = ca.clone() {
                builder = builder.ca(pem);
            }
            builder = builder.runtime(Handle::current());
            Ok(Backend::redis(builder.connect().await?))
        };
        match self {
            Self::Memory => Ok(Backend::memory()),
            Self::Redis(url) => redis(RedisStore::builder(url)).await,
            Self::RedisCluster(urls) => redis(RedisStore::cluster(urls.clone())).await,
            Self::Postgres(url) => {
                let mut builder = PostgresStore::builder(url);
                if let Some(deadline) = deadline {
                    builder = builder.deadline(deadline);
                }
                if let Some(pem) = &ca {
                    builder = builder.tls(trusting(pem)?);
                }
                let store = builder.runtime(Handle::current()).connect().await?;
                store.sweep_every(SWEEP_EVERY);
                Ok(Backend::Postgres(Arc::new(store)))
            }
        }
    }
}

/// Creates a TLS configuration that trusts these CA certificates.
fn trusting(pem: &[u8]) -> Result<rustls::ClientConfig, ServerError> {
    let wrong = |error: &dyn std::fmt::Display| {
        ServerError::tls(format!("CA certificates of the store: {error}: expected PEM"))
    };
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| wrong(&error))?;
        roots.add(certificate).map_err(|error| wrong(&error))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(ServerError::tls)?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Hides the URL, which may hold a password.
impl std::fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.kind())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_which_store() {
        let cluster = |urls: &[&str]| StoreUrl::RedisCluster(urls.iter().map(ToString::to_string).collect());
        let parsed = |text: &str| StoreUrl::parse(text).unwrap();
        assert_eq!(parsed("memory"), StoreUrl::Memory);
        assert_eq!(parsed("rediss://h:1"), StoreUrl::Redis("rediss://h:1".into()));
        assert_eq!(parsed("redis+cluster://a:1"), cluster(&["redis://a:1"]), "also of one node");
        let all = cluster(&["rediss://u:p@a:1", "rediss://u:p@b:2"]);
        assert_eq!(parsed("rediss+cluster://u:p@a:1,b:2"), all);
        assert_eq!(format!("{all:?}"), "redis", "a password is not shown");
        assert_eq!(parsed("postgresql://h/d"), StoreUrl::Postgres("postgresql://h/d".into()));
        assert!(StoreUrl::parse("dynamodb://x").unwrap_err().to_string().contains("redis://"));
    }
}

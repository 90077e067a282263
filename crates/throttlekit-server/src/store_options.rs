//! Options for connecting to a store, as a command line sets them.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use throttlekit_postgres::{Durability, PostgresStore, PostgresStoreBuilder};
use throttlekit_redis::{Failover, RedisStore, RedisStoreBuilder};
use tokio::runtime::Handle;

use crate::engine::Backend;
use crate::server_error::ServerError;
use crate::store_url::StoreUrl;

/// Options for connecting to a store. One that does not apply to the store is an error.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct StoreOptions {
    /// Maximum time of a call. Default: the store's own.
    pub deadline: Option<Duration>,
    /// CA certificates for the servers of the store, in PEM. Default: the public ones.
    pub ca: Option<Vec<u8>>,
    /// Client certificate for the store and its private key, both in PEM.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// Password for the store, if the URL has none.
    pub password: Option<String>,
    /// Password of the Sentinels themselves.
    pub sentinel_password: Option<String>,
    /// Redis: how charges are handled that a failover may lose. Default: they may be admitted again.
    pub failover: Option<Failover>,
    /// PostgreSQL: connections go through a pooler in transaction mode, such as PgBouncer.
    pub pooled: bool,
    /// PostgreSQL: data that a crash may lose. Default: none.
    pub durability: Option<Durability>,
    /// PostgreSQL: maximum number of connections. Default: the store's own.
    pub connections: Option<usize>,
    /// PostgreSQL: schema of the tables and functions. Default: `throttlekit`.
    pub schema: Option<String>,
}

/// Interval at which idle rows are deleted from PostgreSQL. Any number of servers may sweep.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

impl StoreUrl {
    /// Creates or upgrades the schema of PostgreSQL. Other stores need none.
    pub async fn migrate(&self, options: &StoreOptions) -> Result<(), ServerError> {
        match self.prepared(options)? {
            Self::Postgres(url) => Ok(options.postgres(&url)?.migrate().await?),
            _ => Ok(()),
        }
    }

    /// Connects to the store. Background tasks run on this runtime: on a thread of their own they would wait for a
    /// processor while the server is busy.
    pub async fn connect(&self, options: &StoreOptions) -> Result<Backend, ServerError> {
        let store = match self.prepared(options)? {
            Self::Memory => return Ok(Backend::memory()),
            Self::Postgres(url) => {
                let store = options.postgres(&url)?.runtime(Handle::current()).connect().await?;
                store.sweep_every(SWEEP_EVERY);
                return Ok(Backend::Postgres(Arc::new(store)));
            }
            Self::Redis(url) => RedisStore::builder(url),
            Self::RedisCluster(urls) => RedisStore::cluster(urls),
            Self::RedisSentinel { sentinels, service, servers } => {
                RedisStore::sentinel(sentinels, service).servers(&servers)
            }
        };
        let store = options.redis(store).runtime(Handle::current()).connect().await?;
        store.warnings().iter().for_each(|warning| tracing::warn!(%warning, "store"));
        Ok(Backend::redis(store))
    }

    /// Returns the URL with its passwords, if all options apply to it.
    fn prepared(&self, options: &StoreOptions) -> Result<Self, ServerError> {
        options.apply_to(self)?;
        self.clone().with_passwords(options.password.as_deref(), options.sentinel_password.as_deref())
    }
}

impl StoreOptions {
    /// Rejects options that do not apply to this store.
    fn apply_to(&self, url: &StoreUrl) -> Result<(), ServerError> {
        let no = |option, stores| Err(ServerError::store_option(option, stores));
        match url {
            StoreUrl::Memory if self.ca.is_some() || self.identity.is_some() => {
                no("a certificate", "stores other than memory")
            }
            StoreUrl::Memory | StoreUrl::Postgres(_) if self.failover.is_some() => {
                no("a failover mode", "Redis and Valkey")
            }
            StoreUrl::Postgres(url) if self.ca.is_none() && url.contains("sslmode=require") => {
                Err(ServerError::tls("sslmode=require needs the CA of the server: pass --store-ca"))
            }
            StoreUrl::Postgres(_) => Ok(()),
            _ if self.pooled => no("a pooler", "PostgreSQL"),
            _ if self.durability.is_some() => no("durability", "PostgreSQL"),
            _ if self.connections.is_some() => no("a number of connections", "PostgreSQL"),
            _ if self.schema.is_some() => no("a schema", "PostgreSQL"),
            _ => Ok(()),
        }
    }

    fn redis(&self, mut store: RedisStoreBuilder) -> RedisStoreBuilder {
        if let Some(deadline) = self.deadline {
            store = store.deadline(deadline);
        }
        if let Some(pem) = &self.ca {
            store = store.ca(pem.clone());
        }
        if let Some((certificate, key)) = &self.identity {
            store = store.identity(certificate.clone(), key.clone());
        }
        store.failover(self.failover.unwrap_or_default())
    }

    fn postgres(&self, url: &str) -> Result<PostgresStoreBuilder, ServerError> {
        let mut store = PostgresStore::builder(url);
        store = store.pooled(self.pooled).durability(self.durability.unwrap_or_default());
        if let Some(deadline) = self.deadline {
            store = store.deadline(deadline);
        }
        if let Some(connections) = self.connections {
            store = store.connections(connections);
        }
        if let Some(schema) = &self.schema {
            store = store.schema(schema);
        }
        match &self.ca {
            Some(pem) => Ok(store.tls(self.tls(pem)?)),
            None if self.identity.is_some() => Err(ServerError::tls(
                "a client certificate for PostgreSQL needs the CA of the server: pass --store-ca",
            )),
            None => Ok(store),
        }
    }

    /// Creates a TLS configuration that trusts these CA certificates.
    fn tls(&self, ca: &[u8]) -> Result<rustls::ClientConfig, ServerError> {
        let wrong = |error: &dyn Display| {
            ServerError::tls(format!("certificates of the store: {error}: expected PEM"))
        };
        let all = |pem| CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
        let mut roots = rustls::RootCertStore::empty();
        for certificate in all(ca).map_err(|error| wrong(&error))? {
            roots.add(certificate).map_err(|error| wrong(&error))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder =
            rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(ServerError::tls)?.with_root_certificates(roots);
        let Some((certificate, key)) = &self.identity else { return Ok(builder.with_no_client_auth()) };
        let chain = all(certificate).map_err(|error| wrong(&error))?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| wrong(&error))?;
        builder.with_client_auth_cert(chain, key).map_err(|error| wrong(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(url: &str, options: &StoreOptions) -> Option<String> {
        let url = StoreUrl::parse(url).unwrap();
        url.prepared(options).err().map(|error| error.to_string())
    }

    #[test]
    fn an_option_that_does_not_apply_is_an_error() {
        let pooled = StoreOptions { pooled: true, ..StoreOptions::default() };
        assert!(refused("redis://h", &pooled).unwrap().contains("PostgreSQL"));
        assert_eq!(refused("postgres://h/d", &pooled), None);
        let fence = Failover::Fence { isolation: Duration::from_secs(1) };
        let fenced = StoreOptions { failover: Some(fence), ..StoreOptions::default() };
        assert!(refused("postgres://h/d", &fenced).unwrap().contains("Redis"));
        assert!(refused("memory", &fenced).is_some());
        assert_eq!(refused("redis+sentinel://h/main", &fenced), None);
        let schema = StoreOptions { schema: Some("limits".into()), ..StoreOptions::default() };
        for other in ["memory", "redis://h", "redis+cluster://h"] {
            assert!(refused(other, &schema).unwrap().contains("PostgreSQL"), "{other}");
        }
        assert_eq!(refused("postgres://h/d", &schema), None);
        let plain = StoreOptions::default();
        assert!(refused("postgres://h/d?sslmode=require", &plain).unwrap().contains("--store-ca"));
    }

    #[test]
    fn the_schema_reaches_the_store() {
        let options = StoreOptions { schema: Some("limits".into()), ..StoreOptions::default() };
        let builder = options.postgres("postgres://h/d").unwrap();
        assert!(format!("{builder:?}").contains(r#"schema: "limits""#), "{builder:?}");
    }
}

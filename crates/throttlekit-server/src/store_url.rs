//! Which store, as it is said on a command line.

use std::sync::Arc;
use std::time::Duration;

use throttlekit_postgres::PostgresStore;
use throttlekit_redis::RedisStore;

use crate::engine::Backend;

/// Where counts are kept, as it is said on a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    /// In this process.
    Memory,
    /// One Redis or Valkey, or a Sentinel or a cluster by several addresses.
    Redis(Vec<String>),
    /// PostgreSQL.
    Postgres(String),
}

impl StoreUrl {
    /// What an address means: `memory`, `redis://…` (`redis+cluster://a,b,c`), `postgres://…`.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "memory" {
            return Ok(Self::Memory);
        }
        if let Some(nodes) = text.strip_prefix("redis+cluster://") {
            return Ok(Self::Redis(nodes.split(',').map(|node| format!("redis://{node}")).collect()));
        }
        if text.starts_with("redis://") || text.starts_with("rediss://") {
            return Ok(Self::Redis(vec![text.into()]));
        }
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Ok(Self::Postgres(text.into()));
        }
        Err("a store is `memory`, `redis://host:port`, `redis+cluster://host:port,host:port` or `postgres://host/db`".into())
    }

    /// `memory`, `redis` or `postgres`: what may be shown, since an address may hold a password.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Redis(_) => "redis",
            Self::Postgres(_) => "postgres",
        }
    }

    /// Creates or upgrades what a store needs before it can be used: PostgreSQL a schema, the others nothing.
    pub async fn migrate(&self) -> Result<(), String> {
        match self {
            Self::Memory | Self::Redis(_) => Ok(()),
            Self::Postgres(url) => {
                PostgresStore::builder(url).migrate().await.map_err(|error| error.to_string())
            }
        }
    }

    /// Reaches it. No call takes longer than the deadline; as long as the store's own unless stated.
    pub async fn connect(&self, deadline: Option<Duration>) -> Result<Backend, String> {
        let redis = |builder: throttlekit_redis::Builder| match deadline {
            Some(deadline) => builder.deadline(deadline),
            None => builder,
        };
        let wrong = |error: throttlekit::store::StoreError| error.to_string();
        match self {
            Self::Memory => Ok(Backend::memory()),
            Self::Redis(urls) => {
                let builder = match &urls[..] {
                    [url] => RedisStore::builder(url),
                    many => RedisStore::cluster(many.to_vec()),
                };
                Ok(Backend::Redis(redis(builder).connect().await.map_err(wrong)?))
            }
            Self::Postgres(url) => {
                let builder = PostgresStore::builder(url);
                let builder =
                    if let Some(deadline) = deadline { builder.deadline(deadline) } else { builder };
                Ok(Backend::Postgres(Arc::new(builder.connect().await.map_err(wrong)?)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_which_store() {
        let redis = |urls: &[&str]| Ok(StoreUrl::Redis(urls.iter().map(ToString::to_string).collect()));
        assert_eq!(StoreUrl::parse("memory"), Ok(StoreUrl::Memory));
        assert_eq!(StoreUrl::parse("rediss://h:1"), redis(&["rediss://h:1"]));
        assert_eq!(StoreUrl::parse("redis+cluster://a:1,b:2"), redis(&["redis://a:1", "redis://b:2"]));
        assert_eq!(StoreUrl::parse("postgresql://h/d"), Ok(StoreUrl::Postgres("postgresql://h/d".into())));
        assert!(StoreUrl::parse("dynamodb://x").unwrap_err().contains("redis://"));
    }
}

//! The URL of a store, as a command line names it.

use std::fmt;

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
    /// The primary that Sentinels report.
    RedisSentinel {
        /// URLs of some Sentinels.
        sentinels: Vec<String>,
        /// Name of the primary, such as `mymaster`.
        service: String,
        /// Scheme, user and password of the servers: `redis://user:password@localhost`.
        servers: String,
    },
    /// PostgreSQL.
    Postgres(String),
}

/// Schemes of Redis and Valkey, without and with TLS.
const SCHEMES: [&str; 2] = ["redis", "rediss"];

impl StoreUrl {
    /// Parses a URL: `memory`, `redis://host:port`, `redis+cluster://a,b,c`, `redis+sentinel://a,b,c/service` (each with
    /// `rediss` for TLS) or `postgres://…`. A user name and password before the first node of a cluster apply to all
    /// nodes, and before the first Sentinel to the servers that the Sentinels report.
    pub fn parse(text: &str) -> Result<Self, ServerError> {
        if text == "memory" {
            return Ok(Self::Memory);
        }
        for scheme in SCHEMES {
            if let Some(nodes) = text.strip_prefix(&format!("{scheme}+cluster://")) {
                let (user, nodes) = user_of(nodes);
                return Ok(Self::RedisCluster(addresses(scheme, user, nodes)));
            }
            if let Some(rest) = text.strip_prefix(&format!("{scheme}+sentinel://")) {
                let (user, rest) = user_of(rest);
                let (nodes, service) = rest.split_once('/').ok_or(ServerError::StoreUrl)?;
                if service.is_empty() {
                    return Err(ServerError::StoreUrl);
                }
                let (service, servers) = (service.to_owned(), format!("{scheme}://{user}localhost"));
                return Ok(Self::RedisSentinel { sentinels: addresses(scheme, "", nodes), service, servers });
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
            Self::Redis(_) | Self::RedisCluster(_) | Self::RedisSentinel { .. } => "redis",
            Self::Postgres(_) => "postgres",
        }
    }

    /// Returns the URLs of all servers, which may hold passwords. For Sentinels, the last one is that of the servers that
    /// they report, on `localhost`.
    pub(crate) fn addresses(&self) -> Vec<&str> {
        match self {
            Self::Memory => Vec::new(),
            Self::Redis(url) | Self::Postgres(url) => vec![url],
            Self::RedisCluster(urls) => urls.iter().map(String::as_str).collect(),
            Self::RedisSentinel { sentinels, servers, .. } => {
                sentinels.iter().chain([servers]).map(String::as_str).collect()
            }
        }
    }

    /// Adds passwords: of the store, and of the Sentinels themselves. Fails if the URL has one already, or has no use for
    /// it.
    pub(crate) fn with_passwords(
        mut self,
        password: Option<&str>,
        sentinel_password: Option<&str>,
    ) -> Result<Self, ServerError> {
        let sentinels = match &mut self {
            Self::RedisSentinel { sentinels, .. } => sentinels,
            _ if sentinel_password.is_some() => {
                return Err(ServerError::store_option("a password of Sentinels", "redis+sentinel:// URLs"));
            }
            _ => &mut Vec::new(),
        };
        for url in sentinels {
            *url = with_password(url, sentinel_password)?;
        }
        match &mut self {
            Self::Memory if password.is_some() => {
                return Err(ServerError::store_option("a password", "stores other than memory"));
            }
            Self::Memory => {}
            Self::Redis(url) | Self::RedisSentinel { servers: url, .. } => {
                *url = with_password(url, password)?;
            }
            Self::RedisCluster(urls) => {
                for url in urls {
                    *url = with_password(url, password)?;
                }
            }
            Self::Postgres(url) => {
                // As a parameter, since the user may be missing: then it is that of the system.
                if let Some(password) = password {
                    let separator = if url.contains('?') { '&' } else { '?' };
                    *url = format!("{url}{separator}password={}", escaped(password));
                }
            }
        }
        Ok(self)
    }
}

/// Splits the user and password, with the `@`, from addresses.
fn user_of(text: &str) -> (&str, &str) {
    text.rfind('@').map_or(("", text), |at| text.split_at(at + 1))
}

fn addresses(scheme: &str, user: &str, nodes: &str) -> Vec<String> {
    nodes.split(',').map(|node| format!("{scheme}://{user}{node}")).collect()
}

/// Inserts a password into a URL of Redis.
fn with_password(url: &str, password: Option<&str>) -> Result<String, ServerError> {
    let Some(password) = password else { return Ok(url.into()) };
    let (scheme, rest) = url.split_once("://").ok_or(ServerError::StoreUrl)?;
    let (user, host) = user_of(rest);
    let user = user.trim_end_matches('@');
    if user.contains(':') {
        return Err(ServerError::store_option("a password", "URLs without one"));
    }
    Ok(format!("{scheme}://{user}:{}@{host}", escaped(password)))
}

/// Escapes everything that may have a meaning in a URL.
fn escaped(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(escape).collect()
}

/// Hides the URL, which may hold a password.
impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
        let sentinel = StoreUrl::RedisSentinel {
            sentinels: vec!["redis://a:1".into(), "redis://b:2".into()],
            service: "main".into(),
            servers: "redis://u:p@localhost".into(),
        };
        assert_eq!(parsed("redis+sentinel://u:p@a:1,b:2/main"), sentinel);
        assert!(StoreUrl::parse("redis+sentinel://a:1").is_err(), "which primary?");
        assert!(StoreUrl::parse("dynamodb://x").unwrap_err().to_string().contains("redis://"));
    }

    #[test]
    fn a_password_is_added_and_escaped() {
        let parsed = |text: &str| StoreUrl::parse(text).unwrap();
        let with = |text: &str| parsed(text).with_passwords(Some("p@/:1"), None);
        assert_eq!(with("redis://h:1").unwrap(), StoreUrl::Redis("redis://:p%40%2F%3A1@h:1".into()));
        assert_eq!(with("redis://u@h:1/2").unwrap(), StoreUrl::Redis("redis://u:p%40%2F%3A1@h:1/2".into()));
        let postgres = StoreUrl::Postgres("postgres://u@h/d?a=b&password=p%40%2F%3A1".into());
        assert_eq!(with("postgres://u@h/d?a=b").unwrap(), postgres);
        assert!(with("redis://u:p@h:1").is_err() && with("memory").is_err());
        let sentinel = parsed("redis+sentinel://a:1/main").with_passwords(Some("x"), Some("y")).unwrap();
        let StoreUrl::RedisSentinel { sentinels, servers, .. } = sentinel else { panic!() };
        assert_eq!((&sentinels[..], &*servers), (&["redis://:y@a:1".to_owned()][..], "redis://:x@localhost"));
        assert!(parsed("redis://h").with_passwords(None, Some("y")).is_err());
    }
}

//! URLs of stores.

const EXPECTED: &str = "invalid store URL: expected \"memory\", or an address that starts with redis://, \
                        redis+cluster:// or redis+sentinel:// (rediss for TLS), postgres:// or postgresql://";
const SERVICE_EXPECTED: &str = "invalid store URL: expected the name of the primary after the Sentinels, as in \
                                redis+sentinel://host:26379/mymaster";
const PASSWORD_UNUSED: &str = "invalid sentinel_password: only redis+sentinel:// URLs have Sentinels";

/// The parsed URL of a store, in the format of the server's `--store`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Memory,
    Redis(String),
    RedisCluster(Vec<String>),
    RedisSentinel {
        sentinels: Vec<String>,
        /// Name of the primary.
        service: String,
        /// Scheme, user and password of the servers.
        servers: String,
    },
    Postgres(String),
}

impl Address {
    /// Parses a URL. The error states what is expected.
    pub(crate) fn parse(text: &str, sentinel_password: Option<&str>) -> Result<Self, &'static str> {
        for scheme in ["redis", "rediss"] {
            if let Some(rest) = text.strip_prefix(&format!("{scheme}+sentinel://")) {
                return Self::sentinel(scheme, rest, sentinel_password);
            }
        }
        if sentinel_password.is_some() {
            return Err(PASSWORD_UNUSED);
        }
        for scheme in ["redis", "rediss"] {
            if let Some(rest) = text.strip_prefix(&format!("{scheme}+cluster://")) {
                let (user, nodes) = user_of(rest);
                return Ok(Self::RedisCluster(addresses(scheme, user, nodes)));
            }
        }
        let starts = |schemes: &[&str]| schemes.iter().any(|scheme| text.starts_with(scheme));
        match text {
            "memory" => Ok(Self::Memory),
            _ if starts(&["redis://", "rediss://"]) => Ok(Self::Redis(text.into())),
            _ if starts(&["postgres://", "postgresql://"]) => Ok(Self::Postgres(text.into())),
            _ => Err(EXPECTED),
        }
    }

    fn sentinel(scheme: &str, rest: &str, password: Option<&str>) -> Result<Self, &'static str> {
        let (user, rest) = user_of(rest);
        let (nodes, service) = rest.split_once('/').ok_or(SERVICE_EXPECTED)?;
        if nodes.is_empty() || service.is_empty() {
            return Err(SERVICE_EXPECTED);
        }
        let of_sentinels = password.map_or(String::new(), |password| format!(":{}@", escaped(password)));
        Ok(Self::RedisSentinel {
            sentinels: addresses(scheme, &of_sentinels, nodes),
            service: service.to_owned(),
            servers: format!("{scheme}://{user}localhost"),
        })
    }

    /// Returns the kind, which may be shown. A URL may hold a password.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Redis(_) | Self::RedisCluster(_) | Self::RedisSentinel { .. } => "redis",
            Self::Postgres(_) => "postgres",
        }
    }
}

/// Splits the user and password, with the `@`, from addresses.
fn user_of(text: &str) -> (&str, &str) {
    text.rfind('@').map_or(("", text), |at| text.split_at(at + 1))
}

fn addresses(scheme: &str, user: &str, nodes: &str) -> Vec<String> {
    nodes.split(',').map(|node| format!("{scheme}://{user}{node}")).collect()
}

/// Escapes everything that may have a meaning in a URL.
fn escaped(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(escape).collect()
}

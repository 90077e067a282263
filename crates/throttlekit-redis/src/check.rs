//! Whether a server can be used as it is set up.

use std::fmt;

use redis::aio::MultiplexedConnection;
use throttlekit::store::StoreError;

use crate::error::store_error;

/// The first versions whose scripts replicate their effects, so that they may read the clock and write.
const REDIS_MIN: (u32, u32) = (7, 0);
/// Before these, the script engine has holes that let a script's author out of it (CVE-2024-46981, CVE-2025-49844).
const REDIS_PATCHED: [(u32, u32, u32); 3] = [(7, 2, 11), (7, 4, 6), (8, 0, 4)];

/// Something about a server that an operator should know. Decisions are made all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// `host:port`.
    pub node: String,
    /// What, and what to do about it.
    pub what: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.node, self.what)
    }
}

/// Tries what the scripts do.
const RIGHTS: &str = include_str!("lua/rights.lua");
/// No caller's key looks like these: a `%` of ours is followed by two digits.
const RIGHTS_KEYS: [&str; 2] = ["tk:{%rights}g:", "tk:{%rights}l:"];

/// Refuses what would break a promise; returns what may.
pub(crate) async fn check(
    node: &str,
    connection: &mut MultiplexedConnection,
) -> Result<Vec<Warning>, StoreError> {
    let info: String = match redis::cmd("INFO").query_async(connection).await {
        Ok(info) => info,
        Err(error) if !matches!(error.code(), Some("NOPERM" | "ERR")) => return Err(store_error(&error)),
        Err(error) => {
            let what = format!(
                "INFO is refused ({error}), so version and eviction could not be checked; grant +info"
            );
            may_decide(connection).await?;
            return Ok(vec![Warning { node: node.to_owned(), what }]);
        }
    };
    let found = judge(&info)?;
    may_decide(connection).await?;
    Ok(found.into_iter().map(|what| Warning { node: node.to_owned(), what }).collect())
}

/// Tries the commands that the scripts use. A cluster node without their slot and a replica answer otherwise, and say
/// nothing about rights.
async fn may_decide(connection: &mut MultiplexedConnection) -> Result<(), StoreError> {
    let mut cmd = redis::cmd("EVAL");
    cmd.arg(RIGHTS).arg(RIGHTS_KEYS.len()).arg(&RIGHTS_KEYS[..]);
    let tried: Result<Vec<String>, _> = cmd.query_async(connection).await;
    let refused = match tried {
        Ok(refused) if refused.is_empty() => return Ok(()),
        Ok(refused) => format!("its user may not run {}", refused.join(" ")),
        Err(error) if error.code() == Some("NOPERM") => error.detail().unwrap_or("NOPERM").to_owned(),
        Err(error) if error.is_io_error() => return Err(StoreError::unavailable(error)),
        Err(_) => return Ok(()),
    };
    Err(StoreError::misconfigured(format_args!("{refused}; docs/redis.md has the ACL it needs")))
}

fn judge(info: &str) -> Result<Vec<String>, StoreError> {
    let field = |name: &str| {
        info.lines()
            .find_map(|line| line.split_once(':').filter(|(key, _)| *key == name))
            .map(|(_, value)| value.trim())
    };
    let mut warnings = Vec::new();
    let version = field("redis_version").and_then(parse_version).unwrap_or_default();
    if (version.0, version.1) < REDIS_MIN {
        return Err(StoreError::misconfigured(format_args!(
            "version {}.{}.{} is too old: Redis 7.0 or Valkey 7.2 at least",
            version.0, version.1, version.2
        )));
    }
    let patched = REDIS_PATCHED.iter().any(|p| (p.0, p.1) == (version.0, version.1) && version >= *p)
        || (version.0, version.1) > (8, 0);
    if field("valkey_version").is_none() && !patched {
        warnings.push(format!(
            "Redis {}.{}.{} may have known holes in its script engine; see that your packager has closed them",
            version.0, version.1, version.2
        ));
    }
    let (policy, maxmemory) =
        (field("maxmemory_policy").unwrap_or("noeviction"), field("maxmemory").unwrap_or("0"));
    match (policy, maxmemory) {
        ("noeviction", _) => {}
        (policy, "0") => warnings.push(format!(
            "maxmemory-policy is {policy}; set noeviction before you set maxmemory, or limits will be forgotten"
        )),
        (policy, _) => {
            return Err(StoreError::misconfigured(format_args!(
                "maxmemory-policy {policy} evicts keys, and an evicted key is a fresh budget; set noeviction"
            )));
        }
    }
    if field("aof_enabled") == Some("0") && field("connected_slaves") == Some("0") {
        warnings.push("no replica and no append-only file: a restart forgets every limit".into());
    }
    Ok(warnings)
}

fn parse_version(text: &str) -> Option<(u32, u32, u32)> {
    let mut parts = text.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??, parts.next().flatten().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(version: &str, policy: &str, maxmemory: &str) -> String {
        format!(
            "# Server\r\nredis_version:{version}\r\nmaxmemory:{maxmemory}\r\nmaxmemory_policy:{policy}\r\n\
             aof_enabled:1\r\nconnected_slaves:0\r\n"
        )
    }

    #[test]
    fn eviction_and_age_are_refused_and_the_rest_is_said() {
        assert_eq!(judge(&info("7.4.6", "noeviction", "0")), Ok(vec![]));
        assert!(judge(&info("6.2.14", "noeviction", "0")).is_err());
        assert!(judge(&info("8.2.0", "allkeys-lru", "1000000")).is_err());
        assert_eq!(judge(&info("8.2.0", "allkeys-lru", "0")).unwrap().len(), 1);
        assert_eq!(judge(&info("7.0.15", "noeviction", "0")).unwrap().len(), 1);
    }
}

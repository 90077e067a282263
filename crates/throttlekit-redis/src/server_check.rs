//! The check of a server's configuration.

use std::fmt;

use redis::aio::MultiplexedConnection;
use throttlekit::store::StoreError;

use crate::error::store_error;
use crate::replication::{Replication, field};

/// The first versions whose scripts replicate their effects, so that they may read the clock and write.
const REDIS_MIN: (u32, u32) = (7, 0);
/// The first versions without vulnerabilities that let a script escape its sandbox (CVE-2024-46981, CVE-2025-49844).
const REDIS_PATCHED: [(u32, u32, u32); 3] = [(7, 2, 11), (7, 4, 6), (8, 0, 4)];

/// A warning about a server for its operator. Decisions are not affected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// `host:port`.
    pub node: String,
    /// The problem and its fix.
    pub what: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.node, self.what)
    }
}

/// Requirements beyond deciding.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Demands {
    /// It must report its replication id.
    pub(crate) fenced: bool,
    /// It must support waiting for replicas.
    pub(crate) waited: bool,
    /// It must report the offsets of its replicas.
    pub(crate) told: bool,
    pub(crate) in_cluster: bool,
    pub(crate) behind_sentinel: bool,
}

/// The result of a check.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) warnings: Vec<Warning>,
    pub(crate) replication: Option<Replication>,
}

/// The script that tries the commands of all scripts.
const RIGHTS: &str = include_str!("lua/rights.lua");
/// No caller's key looks like these: a `%` in it is followed by two digits.
const RIGHTS_KEYS: [&str; 2] = ["tk:{%rights}g:", "tk:{%rights}l:"];

/// Rejects a configuration that breaks a guarantee; returns warnings about what weakens one.
pub(crate) async fn check(
    node: &str,
    connection: &mut MultiplexedConnection,
    demands: Demands,
) -> Result<Checked, StoreError> {
    let info: String = match redis::cmd("INFO").query_async(connection).await {
        Ok(info) => info,
        Err(error) if !matches!(error.code(), Some("NOPERM" | "ERR")) => return Err(store_error(&error)),
        Err(error) => {
            let what = format!(
                "INFO is rejected ({error}): version, eviction and lost memory cannot be checked, so every \
                 decision is labeled bounded; grant +info"
            );
            if demands.fenced || demands.told {
                return Err(StoreError::misconfigured("the failover mode requires INFO; grant +info"));
            }
            may_decide(connection, demands).await?;
            return Ok(Checked {
                warnings: vec![Warning { node: node.to_owned(), what }],
                replication: None,
            });
        }
    };
    let mut found = judge(&info)?;
    may_decide(connection, demands).await?;
    let replication = Replication::parse(&info);
    found.extend(judge_replication(replication.as_ref(), demands)?);
    let warnings = found.into_iter().map(|what| Warning { node: node.to_owned(), what }).collect();
    Ok(Checked { warnings, replication })
}

/// Checks whether the selected failover mode can work, and returns a warning about what it does not cover.
fn judge_replication(said: Option<&Replication>, demands: Demands) -> Result<Option<String>, StoreError> {
    let Some(said) = said else {
        return match demands.fenced || demands.told {
            true => Err(StoreError::misconfigured(
                "the server does not report its replication id, which the failover mode requires; connect \
                 without a proxy",
            )),
            false => Ok(None),
        };
    };
    let may_be_replaced = demands.behind_sentinel || (said.has_replicas && !demands.in_cluster);
    let warned = demands.fenced && said.is_primary && may_be_replaced && !said.needs_replicas;
    Ok(warned.then(|| {
        "min-replicas-to-write is 0: a primary that is partitioned and replaced still accepts writes, which \
         no fence covers; set it to 1, with min-replicas-max-lag"
            .into()
    }))
}

/// Tries the commands that the scripts use. A cluster node without their slot and a replica respond otherwise, which
/// shows nothing about permissions.
async fn may_decide(connection: &mut MultiplexedConnection, demands: Demands) -> Result<(), StoreError> {
    if demands.waited
        && let Err(error) = redis::cmd("WAIT").arg(0).arg(1).query_async::<i64>(connection).await
        && error.code() == Some("NOPERM")
    {
        return Err(StoreError::misconfigured(
            "the user may not run WAIT; docs/operate/redis.md lists the required ACL",
        ));
    }
    let mut cmd = redis::cmd("EVAL");
    cmd.arg(RIGHTS).arg(RIGHTS_KEYS.len()).arg(&RIGHTS_KEYS[..]).arg(if demands.fenced {
        "fence"
    } else {
        ""
    });
    let tried: Result<Vec<String>, _> = cmd.query_async(connection).await;
    let refused = match tried {
        Ok(refused) if refused.is_empty() => return Ok(()),
        Ok(refused) => format!("the user may not run {}", refused.join(" ")),
        Err(error) if error.code() == Some("NOPERM") => error.detail().unwrap_or("NOPERM").to_owned(),
        Err(error) if error.is_io_error() => return Err(StoreError::unavailable(error)),
        Err(_) => return Ok(()),
    };
    Err(StoreError::misconfigured(format_args!("{refused}; docs/operate/redis.md lists the required ACL")))
}

fn judge(info: &str) -> Result<Vec<String>, StoreError> {
    let field = |name: &str| field(info, name);
    let mut warnings = Vec::new();
    let version = field("redis_version").and_then(parse_version).unwrap_or_default();
    if (version.0, version.1) < REDIS_MIN {
        return Err(StoreError::misconfigured(format_args!(
            "version {}.{}.{} is too old: expected at least Redis 7.0 or Valkey 7.2",
            version.0, version.1, version.2
        )));
    }
    let patched = REDIS_PATCHED.iter().any(|p| (p.0, p.1) == (version.0, version.1) && version >= *p)
        || (version.0, version.1) > (8, 0);
    if field("valkey_version").is_none() && !patched {
        warnings.push(format!(
            "Redis {}.{}.{} may have known vulnerabilities in its script engine; check that your package \
             has the fixes",
            version.0, version.1, version.2
        ));
    }
    let (policy, maxmemory) =
        (field("maxmemory_policy").unwrap_or("noeviction"), field("maxmemory").unwrap_or("0"));
    match (policy, maxmemory) {
        ("noeviction", _) => {}
        (policy, "0") => warnings.push(format!(
            "maxmemory-policy is {policy}; set noeviction before you set maxmemory, or limits will be lost"
        )),
        (policy, _) => {
            return Err(StoreError::misconfigured(format_args!(
                "maxmemory-policy {policy} evicts keys, and an evicted key starts with a full budget; set \
                 noeviction"
            )));
        }
    }
    if field("aof_enabled") == Some("0") && field("connected_slaves") == Some("0") {
        warnings.push("no replica and no append-only file: a restart loses the state of every limit".into());
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
    fn eviction_and_old_versions_are_errors_and_the_rest_are_warnings() {
        assert_eq!(judge(&info("7.4.6", "noeviction", "0")), Ok(vec![]));
        assert!(judge(&info("6.2.14", "noeviction", "0")).is_err());
        assert!(judge(&info("8.2.0", "allkeys-lru", "1000000")).is_err());
        assert_eq!(judge(&info("8.2.0", "allkeys-lru", "0")).unwrap().len(), 1);
        assert_eq!(judge(&info("7.0.15", "noeviction", "0")).unwrap().len(), 1);
    }

    #[test]
    fn a_fence_warns_about_what_it_does_not_cover() {
        let said = |more: &str| Replication::parse(&format!("role:master\r\nmaster_replid:ab\r\n{more}"));
        let replica = "slave0:ip=::1,port=1,state=online,offset=5,lag=0\r\n";
        let fenced = Demands { fenced: true, ..Demands::default() };
        let warns = |more: &str, demands| judge_replication(said(more).as_ref(), demands).unwrap().is_some();
        assert!(warns(replica, fenced));
        assert!(warns("", Demands { behind_sentinel: true, ..fenced }));
        assert!(!warns("", fenced), "nobody could take over");
        assert!(!warns(replica, Demands { in_cluster: true, ..fenced }), "a cluster sees to it itself");
        assert!(!warns(&format!("{replica}min_slaves_good_slaves:1\r\n"), fenced));
        assert!(!warns(replica, Demands::default()));
        assert!(judge_replication(None, fenced).is_err());
        assert!(judge_replication(None, Demands::default()).is_ok());
    }
}

//! Replication state of a server.

/// Fields of `INFO server replication`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Replication {
    /// The replication id. New at every promotion and every start.
    pub(crate) id: String,
    /// The stream that it replicated before its promotion, and the offset up to which it has that.
    pub(crate) before: Option<(String, u64)>,
    /// The run id. New at every start.
    pub(crate) run: String,
    pub(crate) is_primary: bool,
    /// Offset of the stream to the replicas.
    pub(crate) offset: u64,
    /// Offset of the slowest replica. `None` if there is no replica, or one has not reported an offset yet.
    pub(crate) heard: Option<u64>,
    pub(crate) has_replicas: bool,
    /// Set if it rejects writes while its replicas are unreachable.
    pub(crate) needs_replicas: bool,
}

impl Replication {
    /// Parses the fields. Returns `None` if the text lacks the server's id.
    pub(crate) fn parse(info: &str) -> Option<Self> {
        let id = field(info, "master_replid").filter(|id| !id.is_empty())?.to_owned();
        let replicas: Vec<Option<u64>> = replica_lines(info).map(heard_by).collect();
        Some(Self {
            id,
            before: before(info),
            run: field(info, "run_id").unwrap_or_default().to_owned(),
            is_primary: field(info, "role") == Some("master"),
            offset: field(info, "master_repl_offset").and_then(|n| n.parse().ok()).unwrap_or(0),
            heard: replicas.iter().copied().min().flatten(),
            has_replicas: !replicas.is_empty(),
            // Present only if both settings are above zero.
            needs_replicas: field(info, "min_slaves_good_slaves").is_some(),
        })
    }
}

/// Parses the previous stream. All zeros mean none.
fn before(info: &str) -> Option<(String, u64)> {
    let id = field(info, "master_replid2").filter(|id| id.contains(|digit| digit != '0'))?;
    let next: u64 = field(info, "second_repl_offset")?.parse().ok()?;
    Some((id.to_owned(), next.saturating_sub(1)))
}

/// Returns one field of `INFO`.
pub(crate) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let named = |line: &'a str| line.split_once(':').filter(|(key, _)| *key == name);
    info.lines().find_map(named).map(|(_, value)| value.trim())
}

/// Returns the lines `slave0:ip=…,port=…,state=online,offset=…,lag=…`.
fn replica_lines(info: &str) -> impl Iterator<Item = &str> {
    info.lines().filter_map(|line| {
        let (number, rest) = line.strip_prefix("slave")?.split_once(':')?;
        number.parse::<u32>().is_ok().then_some(rest)
    })
}

/// Returns the offset of a replica. One that is not in sync, or has not reported an offset, has none.
fn heard_by(line: &str) -> Option<u64> {
    let part = |name: &str| line.split(',').find_map(|part| part.trim().strip_prefix(name));
    part("state=").filter(|state| *state == "online")?;
    part("offset=")?.parse().ok().filter(|offset| *offset > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(replicas: &str) -> String {
        format!(
            "role:master\r\n{replicas}master_replid:ab12\r\nmaster_replid2:00\r\nmaster_repl_offset:90\r\n"
        )
    }

    fn heard(replicas: &str) -> Option<u64> {
        Replication::parse(&info(replicas)).unwrap().heard
    }

    #[test]
    fn the_slowest_replica_counts_and_one_out_of_sync_has_nothing() {
        let online = |offset| format!("slave0:ip=::1,port=1,state=online,offset={offset},lag=0\r\n");
        assert_eq!(heard(&(online(70) + &online(80).replace("slave0", "slave1"))), Some(70));
        assert_eq!(heard(&(online(70) + "slave1:ip=::1,port=2,state=wait_bgsave,offset=0,lag=0\r\n")), None);
        assert_eq!((heard(""), heard(&online(0))), (None, None));
        assert_eq!(Replication::parse("role:master\r\n"), None);
    }

    #[test]
    fn a_promoted_server_reports_its_offset_in_the_previous_stream() {
        let said = |two: &str| Replication::parse(&info("").replace("replid2:00", two)).unwrap().before;
        assert_eq!(said("replid2:cd\r\nsecond_repl_offset:71"), Some(("cd".into(), 70)));
        assert_eq!(said("replid2:00\r\nsecond_repl_offset:-1"), None);
    }
}

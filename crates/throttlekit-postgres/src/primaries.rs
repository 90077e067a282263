//! Detection of a second primary among the hosts of the address.
//!
//! After a failover the old primary may be restarted next to the new one. Then both admit up to the limit. One server
//! cannot detect that; if the address names both, the store can.

use std::time::Duration;

use throttlekit::store::StoreError;
use tokio::time::timeout;

use crate::seeded::SeededBug;
use crate::store::Inner;

/// Timeout for a host; then it counts as unreachable.
const LOOK_MAX: Duration = Duration::from_millis(500);

/// The state that a host reported.
struct Seen {
    place: usize,
    standby: bool,
    system: i64,
    timeline: i64,
    started: i64,
}

impl Inner {
    /// Returns whether a host other than the one in use is a primary.
    ///
    /// One on a later timeline was promoted after the one in use: it is preferred from now on, and this returns an
    /// error so that nothing more is decided here.
    pub(crate) async fn other_primary(&self) -> Result<bool, StoreError> {
        if self.builder.seeded.has(SeededBug::OtherHostsIgnored) {
            return Ok(false);
        }
        let (started, history) = self.lineage.server();
        let mut others = self.look_at_hosts().await;
        others.retain(|seen| !seen.standby && seen.started != started);
        let newer = |seen: &&Seen| seen.system == history.system && seen.timeline > history.timeline;
        if let Some(newest) = others.iter().filter(newer).max_by_key(|seen| seen.timeline) {
            self.link.control.connector().prefer(newest.place);
            self.link.close_idle();
            return Err(StoreError::unavailable(
                "this host is no longer the primary: another host of the address was promoted after it",
            ));
        }
        Ok(!others.is_empty())
    }

    /// Returns every host that responds, each over a connection that is closed at once. Empty if there is only one
    /// host.
    async fn look_at_hosts(&self) -> Vec<Seen> {
        let mut looks = Vec::new();
        let background = self.builder.background.clone();
        let hosts = self.link.control.connector().hosts();
        for place in (0..hosts).filter(|_| hosts > 1) {
            let (control, spawns) = (self.link.control.clone(), background.clone());
            looks.push(background.spawn(async move {
                let look = async {
                    let (client, driver) = control.connector().dial_host(place).await.ok()?;
                    spawns.spawn(driver);
                    let text = "SELECT pg_is_in_recovery(),
                        CASE WHEN pg_is_in_recovery() THEN 0
                            ELSE ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint END,
                        (SELECT system_identifier FROM pg_control_system()),
                        (date_part('epoch', pg_postmaster_start_time()) * 1000000)::bigint";
                    let rows = client.query_typed(text, &[]).await.ok()?;
                    let row = rows.first()?;
                    let [timeline, system, started] = [row.get(1), row.get(2), row.get(3)];
                    Some(Seen { place, standby: row.get(0), system, timeline, started })
                };
                timeout(LOOK_MAX, look).await.ok().flatten()
            }));
        }
        let mut seen = Vec::new();
        for look in looks {
            seen.extend(look.await.ok().flatten());
        }
        seen
    }
}

//! Time zones by name, for quotas that begin at local midnight.
//!
//! ```
//! use throttlekit::rate::{Cadence, LocalPeriod};
//! use throttlekit::{Budget, Limiter, time_zone};
//!
//! let zone = time_zone::find("America/New_York")?;
//! let billing = Cadence::Local { period: LocalPeriod::Month { starts_on: 15 }, zone };
//! let limiter = Limiter::new(Budget::new(10_000, billing))?;
//! assert!(limiter.check("alice").allowed);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Zones come from the time zone database of the system, in `/usr/share/zoneinfo` or the directory in `TZDIR`. With the
//! feature `time-zones-embedded`, what is missing there comes from a copy in the program.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;

use jiff::tz::{TimeZone, TimeZoneDatabase, db};
use throttlekit_core::rate::{Zone, ZoneOffset, ZoneTable};

use crate::sync::RwLock;

/// Tables reach up to here: the year 2200.
const END_SECONDS: i64 = 7_258_118_400;

/// The zones that were found, by their names in the database. Limits refer to their tables, so a table stays for as long as
/// the program runs; there are as many as the database has names.
static FOUND: RwLock<BTreeMap<String, Zone>> = RwLock::new(BTreeMap::new());

/// Returns a time zone by its name in the IANA database, such as `Europe/Berlin`.
///
/// Its offsets are read once and stay until the program ends. Processes that share a limit should have the same version of
/// the database: where two versions disagree about a boundary, each process counts by its own.
pub fn find(name: &str) -> Result<Zone, UnknownTimeZone> {
    let unknown = || UnknownTimeZone(name.into());
    let found = lookup(name).ok_or_else(unknown)?;
    let known_as = found.iana_name().unwrap_or(name).to_owned();
    let mut zones = FOUND.write();
    if let Some(zone) = zones.get(&known_as) {
        return Ok(*zone);
    }
    let table = ZoneTable::new(&known_as, offsets(&found)).map_err(|_| unknown())?;
    let zone = Zone::from(&*Box::leak(Box::new(table)));
    zones.insert(known_as, zone);
    Ok(zone)
}

fn lookup(name: &str) -> Option<TimeZone> {
    db().get(name).or_else(|_| TimeZoneDatabase::bundled().get(name)).ok().filter(|zone| !zone.is_unknown())
}

/// Returns the offsets since the epoch.
fn offsets(zone: &TimeZone) -> Vec<ZoneOffset> {
    let epoch = jiff::Timestamp::UNIX_EPOCH;
    let first = ZoneOffset { from_seconds: 0, seconds_east: zone.to_offset(epoch).seconds() };
    let mut offsets = vec![first];
    for change in zone.following(epoch) {
        let next = ZoneOffset {
            from_seconds: change.timestamp().as_second(),
            seconds_east: change.offset().seconds(),
        };
        if next.from_seconds >= END_SECONDS {
            break;
        }
        // A change of a name or of a rule need not change the clocks.
        if offsets.last().is_none_or(|last| last.seconds_east != next.seconds_east) {
            offsets.push(next);
        }
    }
    offsets
}

/// Error: no time zone has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownTimeZone(Box<str>);

impl fmt::Display for UnknownTimeZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "unknown time zone `{}`: expected a name of the IANA database, such as Europe/Berlin",
            self.0.escape_debug()
        )
    }
}

impl Error for UnknownTimeZone {}

#[cfg(all(test, not(loom)))]
mod tests;

//! The canonical form of all states that have the same future.
//!
//! Of identities and report numbers only the order matters. The same holds for grant numbers up to the last
//! one that the membership record issued; later ones follow one by one, so their distance matters as well.
//! Expired grants stay expired.

use super::Fleet;
use super::state::{Held, Host, Letter, RebalanceState, Says};

/// The number of the first report, so that a node that has made one can have made one before it.
const HEARTBEAT_MIN: u8 = 2;

impl RebalanceState {
    pub(super) fn plain(&mut self, fleet: &Fleet) {
        self.forget(fleet);
        self.renumber_grants();
        self.rename();
        self.renumber_reports();
        self.letters.sort_unstable();
    }

    /// Returns every grant number except the membership record's own.
    pub(super) fn numbers(&mut self) -> impl Iterator<Item = &mut u8> {
        let held = self.hosts.iter_mut().filter_map(|host| host.grant.as_mut().map(|held| &mut held.number));
        let known = self.membership.members.iter_mut().flatten().map(|known| &mut known.number);
        let said = self.letters.iter_mut().flatten().map(|letter| match &mut letter.says {
            Says::Report { applied, .. } => applied,
            Says::Grant { number, .. } => number,
        });
        held.chain(known).chain(said)
    }

    /// Drops everything that no step will read.
    fn forget(&mut self, fleet: &Fleet) {
        let (lives, remembered) = (fleet.lives, fleet.remembered());
        let members = &mut self.membership.members;
        members.iter_mut().for_each(|place| *place = place.filter(|known| known.age < remembered));
        // The rest moves up: `None` sorts last.
        members.sort_by_key(|place| place.map_or(u8::MAX, |known| known.id));
        // A grant is accepted only as the response to the report in flight.
        let awaits = |host: &Host, letter: &Letter| {
            let awaited = host.waiting.is_some() && host.heartbeat == letter.heartbeat;
            host.id == letter.id && letter.age < lives && (awaited || fleet.seam.takes_unawaited())
        };
        for place in &mut self.letters {
            *place = place.filter(|letter| match letter.says {
                Says::Report { .. } => true,
                Says::Grant { .. } => self.hosts.iter().any(|host| awaits(host, letter)),
            });
            place.iter_mut().for_each(|letter| letter.age = letter.age.min(lives));
        }
        let (linger, ages) = (fleet.linger as i8, lives as i8);
        for host in &mut self.hosts {
            host.waiting.iter_mut().for_each(|age| *age = (*age).min(lives));
            // An expired grant matters while work runs on, and while a report is in flight that named it as
            // in force.
            let matters = |left: i8| left > -linger && host.in_flight > 0 || host.waiting.is_some();
            host.grant = host.grant.and_then(|held| match held.left {
                1.. => Some(held),
                left => matters(left).then_some(Held { share: 0, left: left.max(-linger.max(ages)), ..held }),
            });
        }
    }

    fn renumber_grants(&mut self) {
        let last = self.membership.number;
        let mut old: Vec<u8> =
            self.numbers().map(|number| *number).filter(|&n| (1..=last).contains(&n)).collect();
        old.sort_unstable();
        old.dedup();
        let renumbered = old.len() as u8;
        self.membership.number = renumbered;
        self.numbers().filter(|number| **number > 0).for_each(|number| {
            *number = match old.binary_search(number) {
                Ok(at) => at as u8 + 1,
                Err(_) => renumbered + (*number - last),
            }
        });
    }

    fn rename(&mut self) {
        let mut ids = [0; 16];
        let mut count = 0;
        self.ids().filter(|id| **id > 0).for_each(|id| {
            ids[count] = *id;
            count += 1;
        });
        let ids = &mut ids[..count];
        ids.sort_unstable();
        self.ids().filter(|id| **id > 0).for_each(|id| {
            let mut before = 0;
            ids.windows(2)
                .take_while(|pair| pair[0] < *id)
                .for_each(|pair| before += u8::from(pair[0] != pair[1]));
            *id = before + 1;
        });
        self.hosts.sort_unstable_by_key(|host| if host.id == 0 { u8::MAX } else { host.id });
    }

    fn ids(&mut self) -> impl Iterator<Item = &mut u8> {
        let hosts = self.hosts.iter_mut().map(|host| &mut host.id);
        let known = self.membership.members.iter_mut().flatten().map(|known| &mut known.id);
        let letters = self.letters.iter_mut().flatten().map(|letter| &mut letter.id);
        hosts.chain(known).chain(letters).chain([&mut self.yielded])
    }

    fn renumber_reports(&mut self) {
        let last = self.ids().map(|id| *id).max().unwrap_or(0);
        for id in 1..=last {
            let mut heartbeats: Vec<u8> =
                self.heartbeats(id).map(|heartbeat| *heartbeat).filter(|heartbeat| *heartbeat > 0).collect();
            if heartbeats.is_empty() {
                continue;
            }
            heartbeats.sort_unstable();
            heartbeats.dedup();
            self.heartbeats(id).filter(|heartbeat| **heartbeat > 0).for_each(|heartbeat| {
                *heartbeat =
                    HEARTBEAT_MIN + heartbeats.iter().take_while(|&other| other < heartbeat).count() as u8;
            });
        }
    }

    fn heartbeats(&mut self, id: u8) -> impl Iterator<Item = &mut u8> {
        let hosts = self.hosts.iter_mut().filter(move |host| host.id == id).map(|host| &mut host.heartbeat);
        let known = self.membership.members.iter_mut().flatten().filter(move |known| known.id == id);
        let letters = self.letters.iter_mut().flatten().filter(move |letter| letter.id == id);
        hosts
            .chain(known.map(|known| &mut known.heartbeat))
            .chain(letters.map(|letter| &mut letter.heartbeat))
    }
}

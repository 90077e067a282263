//! Capacity that many callers share and none can fill.

use super::CallerMap;
use super::who::{Group, Who};

/// Number of groups that are remembered though they hold nothing, so that their next request allocates nothing.
const EMPTY_GROUPS_MAX: usize = 64;
/// Number of connections for which the memory of such a group is kept.
const EMPTY_CONNECTIONS_MAX: usize = 64;

/// Capacity that many callers share and none can fill.
///
/// A group that holds more than is free, times its weight, gets no more; within a group the same holds for each
/// connection. So `n` groups of one weight that want all of it hold `1/(n + 1)` each, as much stays free for the next
/// group, and when capacity gets scarce those that hold most are refused first. These are the dynamic thresholds by
/// which switches share their buffers (Choudhury and Hahne, 1998).
#[derive(Debug)]
pub(super) struct Crowd {
    capacity: u64,
    taken: u64,
    groups: CallerMap<Group, Part>,
}

#[derive(Debug, Default)]
struct Part {
    taken: u64,
    connections: CallerMap<u64, u64>,
}

impl Crowd {
    pub(super) fn new(capacity: u64) -> Self {
        Self { capacity, taken: 0, groups: CallerMap::default() }
    }

    /// Takes capacity, if there is enough for the caller.
    pub(super) fn enter(&mut self, who: &Who, units: u64) -> bool {
        let free = self.capacity.saturating_sub(self.taken);
        let threshold = free.saturating_mul(who.weight.get().into());
        if units > free || units > threshold {
            return false;
        }
        let part = match self.groups.get_mut(&who.group) {
            Some(part) => part,
            None => self.groups.entry(who.group.clone()).or_default(),
        };
        let of_connection = part.connections.entry(who.connection).or_default();
        let enters = part.taken + *of_connection + units <= threshold;
        if enters {
            *of_connection += units;
            part.taken += units;
            self.taken += units;
        } else if *of_connection == 0 {
            part.connections.remove(&who.connection);
        }
        enters
    }

    /// Releases capacity.
    pub(super) fn leave(&mut self, who: &Who, units: u64) {
        self.taken -= units;
        let Some(part) = self.groups.get_mut(&who.group) else { return };
        part.taken -= units;
        if let Some(held) = part.connections.get_mut(&who.connection) {
            *held -= units;
            if *held == 0 {
                part.connections.remove(&who.connection);
            }
        }
        if part.taken == 0 {
            self.forget(&who.group);
        }
    }

    /// Removes a group that holds nothing, unless it is one of the few that are remembered.
    fn forget(&mut self, group: &Group) {
        let crowded = self.groups.len() > EMPTY_GROUPS_MAX;
        let is_large = |part: &Part| part.connections.capacity() > EMPTY_CONNECTIONS_MAX;
        if self.groups.get(group).is_some_and(|part| part.taken == 0 && (crowded || is_large(part))) {
            self.groups.remove(group);
        }
    }

    /// Returns the capacity that is taken.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::share::tests::who;

    /// Returns the capacity that each holds once all took what they could, in turn.
    fn filled(crowd: &mut Crowd, all: &[Who]) -> Vec<u64> {
        let mut held = vec![0; all.len()];
        loop {
            let took: Vec<_> = all.iter().map(|who| u64::from(crowd.enter(who, 1))).collect();
            if took.iter().all(|took| *took == 0) {
                return held;
            }
            held.iter_mut().zip(took).for_each(|(held, took)| *held += took);
        }
    }

    #[test]
    fn as_much_stays_free_for_the_next_as_each_of_those_who_want_everything_has() {
        for groups in [1, 2, 10] {
            let mut crowd = Crowd::new(11_000);
            let all: Vec<_> = (0..groups).map(|name| who(name, 1, name)).collect();
            // One connection each: it counts for its group, and for itself.
            let each = 11_000 / (groups + 2).max(3);
            let held = filled(&mut crowd, &all);
            assert!(held.iter().all(|held| *held >= each * 2 / 3), "{held:?}");
            assert!(crowd.enter(&who(99, 1, 99), each / 2), "a newcomer finds room");
        }
    }

    #[test]
    fn a_group_is_no_larger_for_its_connections_and_leaves_room_for_its_next_one() {
        let mut crowd = Crowd::new(10_000);
        let many: Vec<_> = (0..17).map(|connection| who(1, 1, connection)).collect();
        let held: u64 = filled(&mut crowd, &many).iter().sum();
        assert!((4_000..=5_000).contains(&held), "{held}");
        assert!(crowd.enter(&who(1, 1, 99), 100), "the next connection of the same group finds room");
        assert!(
            crowd.enter(&who(2, 1, 100), 2_000),
            "another group finds as much as this one holds, or nearly"
        );
    }

    #[test]
    fn room_follows_weights() {
        let mut crowd = Crowd::new(10_000);
        let all = [who(1, 1, 1), who(2, 3, 2)];
        let mut held = filled(&mut crowd, &all);
        // While they take and release capacity.
        for _ in 0..20_000 {
            for (who, held) in all.iter().zip(&mut held) {
                crowd.leave(who, 1);
                *held = *held + u64::from(crowd.enter(who, 1)) + u64::from(crowd.enter(who, 1)) - 1;
            }
        }
        let ratio = held[1] as f64 / held[0] as f64;
        assert!((2.7..3.3).contains(&ratio), "{held:?}");
    }

    #[test]
    fn what_is_given_back_leaves_no_trace() {
        let mut crowd = Crowd::new(100);
        let (a, b) = (who(1, 1, 1), who(2, 1, 2));
        assert!(crowd.enter(&a, 20) && crowd.enter(&b, 10) && crowd.enter(&a, 5));
        crowd.leave(&a, 25);
        crowd.leave(&b, 10);
        assert_eq!(crowd.taken(), 0);
        assert!(crowd.groups.values().all(|part| part.taken == 0 && part.connections.is_empty()));
    }

    #[test]
    fn few_groups_that_left_are_remembered_and_none_that_is_large() {
        let mut crowd = Crowd::new(10_000);
        let all: Vec<_> = (0..1_000).map(|group| who(group, 1, group)).collect();
        assert!(all.iter().all(|who| crowd.enter(who, 1)));
        all.iter().for_each(|who| crowd.leave(who, 1));
        assert!(crowd.groups.len() <= EMPTY_GROUPS_MAX, "{} left", crowd.groups.len());
        (0..1_000).for_each(|connection| assert!(crowd.enter(&who(1_001, 1, connection), 1)));
        (0..1_000).for_each(|connection| crowd.leave(&who(1_001, 1, connection), 1));
        assert!(crowd.groups.values().all(|part| part.connections.capacity() <= EMPTY_CONNECTIONS_MAX));
    }
}

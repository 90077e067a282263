//! The order in which waiters were served.

use throttlekit_core::turn::BY_AGE_EVERY;

/// A caller that waited and was not killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Joined {
    /// Its place in the order of arrival.
    pub(super) number: usize,
    /// Its priority: 0 is the most urgent.
    pub(super) class: u32,
}

/// Returns the violations of the order in which these callers, who joined in the order of their numbers, got the slot.
pub(super) fn judge(joined: &[Joined], admitted: &[usize]) -> Vec<String> {
    let mut waiting = joined.to_vec();
    let mut violations = Vec::new();
    // Turns since one went by age to a caller that was not the most urgent, and since one went to the longest waiter.
    let (mut since_age, mut since_longest) = (BY_AGE_EVERY, 0);
    for (turn, number) in admitted.iter().enumerate() {
        let Some(place) = waiting.iter().position(|waiter| waiter.number == *number) else {
            violations.push(format!("turn {turn}: {number} did not wait"));
            continue;
        };
        let served = waiting[place];
        let is_urgent = waiting.iter().all(|other| served.class <= other.class);
        let is_first = waiting[..place].iter().all(|other| other.class != served.class);
        since_age += 1;
        since_longest = if place == 0 { 0 } else { since_longest + 1 };
        // The first to come has its turn before the others are there.
        let had_its_turn = turn == 0 && served.number == 0;
        let is_right = had_its_turn || (is_urgent && is_first) || (place == 0 && since_age >= BY_AGE_EVERY);
        if !is_right {
            violations
                .push(format!("turn {turn}: {served:?} was served before {waiting:?}, after {admitted:?}"));
        }
        if since_longest >= BY_AGE_EVERY {
            violations
                .push(format!("turn {turn}: {:?} has waited longest, and {admitted:?} went", waiting[0]));
        }
        if !is_urgent && !had_its_turn {
            since_age = 0;
        }
        waiting.remove(place);
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::{Joined, judge};

    fn joined(classes: &[u32]) -> Vec<Joined> {
        classes.iter().enumerate().map(|(number, &class)| Joined { number, class }).collect()
    }

    #[test]
    fn urgent_callers_go_first_and_one_turn_in_four_goes_to_the_longest_waiter() {
        let waiters = joined(&[2, 2, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(judge(&waiters, &[0, 2, 3, 1, 4, 5, 6, 7, 8]), Vec::<String>::new());
        for (wrong, why) in [
            ([0, 3, 2, 1, 4, 5, 6, 7, 8], "another of its class came before"),
            ([0, 2, 3, 4, 5, 1, 6, 7, 8], "the longest waiter goes after four turns"),
            ([0, 1, 2, 3, 4, 5, 6, 8, 7], "a more urgent one waits"),
            ([2, 3, 4, 5, 0, 1, 6, 7, 8], "the first goes after four turns"),
        ] {
            assert!(!judge(&waiters, &wrong).is_empty(), "{why}");
        }
    }

    #[test]
    fn callers_of_one_class_are_served_as_they_came() {
        let waiters = joined(&[1, 1, 1, 1, 1]);
        assert!(judge(&waiters, &[0, 1, 2, 3, 4]).is_empty());
        assert!(!judge(&waiters, &[0, 1, 3, 2, 4]).is_empty());
        assert!(!judge(&waiters, &[0, 1, 1]).is_empty(), "each once");
    }
}

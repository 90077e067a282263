//! Computes the concurrency from the stamps of all processes.

use std::collections::HashMap;

/// The work that members logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Worked {
    /// Slots that were used for work.
    pub(super) slots: u64,
    /// Stamps in them.
    pub(super) stamps: u64,
    /// Work that was stopped by the fence.
    pub(super) fenced: u64,
    /// The maximum concurrency: work in a slot lasts from its first stamp to its last.
    pub(super) at_once: u32,
}

pub(super) fn worked(log: &str) -> Worked {
    let mut spans: HashMap<&str, (u64, u64)> = HashMap::new();
    let mut found = Worked::default();
    for line in log.lines() {
        let mut words = line.split(' ');
        match (words.next(), words.next(), words.next().and_then(|nanos| nanos.parse().ok())) {
            (Some("w"), Some(slot), Some(at)) => {
                found.stamps += 1;
                let span = spans.entry(slot).or_insert((at, at));
                *span = (span.0.min(at), span.1.max(at));
            }
            (Some("f"), ..) => found.fenced += 1,
            _ => {}
        }
    }
    found.slots = spans.len() as u64;
    found.at_once = most_at_once(spans.values().copied());
    found
}

/// Returns the maximum overlap. Both ends of a span belong to it.
fn most_at_once(spans: impl Iterator<Item = (u64, u64)>) -> u32 {
    let mut edges: Vec<(u64, i32)> = spans.flat_map(|(begin, end)| [(begin, 1), (end + 1, -1)]).collect();
    edges.sort_unstable();
    let (mut now, mut most) = (0, 0);
    for (_, step) in edges {
        now += step;
        most = most.max(now);
    }
    most as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_that_touch_are_at_once_and_those_that_follow_are_not() {
        assert_eq!(worked("w a 5\nw a 9\nw b 9\nw c 10\nw b 11\nf a 0\n").at_once, 2);
        assert_eq!(worked("w a 5\nw a 9\nw b 10\nw c 11\n").at_once, 1);
        assert_eq!(worked("w a 1\nw b 2\nw c 3\nw a 9\nw b 9\nw c 9\n").at_once, 3);
    }
}

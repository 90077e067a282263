//! Names of limits that users add to a policy without one.

use std::fmt::Write;

use super::Dimension;

/// Returns the names of the limits, which are those of their counts on a store: the axis, the index of the key if it is
/// not the first, and a number from the second one on. A name depends on the limit's own dimension only, so that adding a
/// limit does not reset the others.
pub(super) fn names(on: &[Dimension]) -> Vec<String> {
    let name = |(place, on_it): (usize, &Dimension)| {
        let same = |other: &&Dimension| (other.axis, other.key) == (on_it.axis, on_it.key);
        let mut name = on_it.axis.label().to_owned();
        if on_it.key > 0 {
            let _ = write!(name, "{}", on_it.key);
        }
        match on[..place].iter().filter(same).count() {
            0 => {}
            before => {
                let _ = write!(name, ".{}", before + 1);
            }
        }
        name
    };
    on.iter().enumerate().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Axis;

    #[test]
    fn the_name_of_a_limit_does_not_depend_on_other_dimensions() {
        let on = [Axis::Rate.by(0), Axis::Rate.by(1), Axis::Cost.by(0), Axis::Rate.by(1), Axis::Rate.by(0)];
        assert_eq!(names(&on), ["rate", "rate1", "cost", "rate1.2", "rate.2"]);
        assert_eq!(names(&on[2..3]), ["cost"]);
    }
}

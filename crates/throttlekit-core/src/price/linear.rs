//! Three equations in three unknowns.

/// As many as there are axes.
pub(super) const AXES: usize = 3;

/// One number for each axis: rate, cost, hold.
pub(super) type Axes = [f64; AXES];

/// A pivot below this is taken for zero. Entries are at most 1.
const PIVOT_MIN: f64 = 1e-11;

/// The sum of products.
pub(super) fn dot(a: &Axes, b: &Axes) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

/// The matrix with rows and columns exchanged.
pub(super) fn transposed(m: &[Axes; AXES]) -> [Axes; AXES] {
    core::array::from_fn(|row| core::array::from_fn(|column| m[column][row]))
}

/// The x for which each row times x is its right side; `None` if the rows do not fix it.
pub(super) fn solve(mut rows: [Axes; AXES], mut right: Axes) -> Option<Axes> {
    for at in 0..AXES {
        let pivot = (at..AXES).max_by(|a, b| rows[*a][at].abs().total_cmp(&rows[*b][at].abs()))?;
        rows.swap(at, pivot);
        right.swap(at, pivot);
        if rows[at][at].abs() < PIVOT_MIN {
            return None;
        }
        for below in at + 1..AXES {
            let factor = rows[below][at] / rows[at][at];
            (at..AXES).for_each(|column| rows[below][column] -= factor * rows[at][column]);
            right[below] -= factor * right[at];
        }
    }
    let mut x = [0.0; AXES];
    for at in (0..AXES).rev() {
        let known: f64 = (at + 1..AXES).map(|column| rows[at][column] * x[column]).sum();
        x[at] = (right[at] - known) / rows[at][at];
    }
    Some(x)
}

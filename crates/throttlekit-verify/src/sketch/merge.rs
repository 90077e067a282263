//! Merging: 64 nodes each see a part; the sum of their sketches is the sketch of the whole.

use throttlekit::hash::{KeyHash, SecretHash};
use throttlekit::overload::Shape;
use throttlekit_core::overload::LinearSketch;

use super::subject::seed_of;
use super::{Check, ensure};
use throttlekit_conformance::Dice;

const NODES: usize = 64;
const ASKS: u64 = 4_000;
const PRINT: u64 = 0x5EED;

/// Checks nodes with random traffic, merged by `merge` in random order, as bytes.
pub fn check_merge(fleets: u64, merge: fn(&mut LinearSketch, &LinearSketch) -> bool) -> Check {
    for fleet in 0..fleets {
        let mut dice = Dice::new(fleet);
        let shape = Shape::new(dice.between(1, 300) as u32, dice.between(1, 9) as u32).expect("a shape");
        let mut nodes = vec![LinearSketch::new(shape, PRINT); NODES];
        let mut whole = LinearSketch::new(shape, PRINT);
        let hash = SecretHash::with_seed(seed_of(fleet));
        for _ in 0..ASKS {
            let (node, units) = (dice.below(NODES as u64) as usize, dice.any_size(1 << 16));
            let key = hash.fingerprint(&dice.any_size(10_000).to_le_bytes());
            nodes[node].observe(key, units);
            whole.observe(key, units);
        }
        let merged = summed(nodes, &mut dice, merge)
            .map_err(|counterexample| format!("fleet {fleet}: {counterexample}"))?;
        ensure(merged == whole, || format!("fleet {fleet}: the sum is not the sketch of the whole"))?;
    }
    refused(merge)
}

fn summed(
    mut nodes: Vec<LinearSketch>,
    dice: &mut Dice,
    merge: fn(&mut LinearSketch, &LinearSketch) -> bool,
) -> Result<LinearSketch, String> {
    while nodes.len() > 1 {
        let from = nodes.swap_remove(dice.below(nodes.len() as u64) as usize);
        let sent = LinearSketch::from_bytes(&from.to_bytes()).map_err(|error| error.to_string())?;
        let into = dice.below(nodes.len() as u64) as usize;
        ensure(merge(&mut nodes[into], &sent), || "a merge that is refused".into())?;
    }
    nodes.pop().ok_or_else(|| "no nodes".into())
}

/// Checks that sketches with another hash or another size are refused.
fn refused(merge: fn(&mut LinearSketch, &LinearSketch) -> bool) -> Check {
    let of = |width, print| LinearSketch::new(Shape::new(width, 2).expect("a shape"), print);
    for other in [of(8, 2), of(9, 1)] {
        ensure(!merge(&mut of(8, 1), &other), || format!("merged what does not fit: {other:?}"))?;
    }
    Ok(())
}

//! Contenders take turns, so that other load of the machine affects all of them.

use anyhow::{Context, Result, bail};

const ROUNDS: usize = 5;

pub fn rounds_from(args: &[&str]) -> Result<usize> {
    match args {
        [] => Ok(ROUNDS),
        ["--rounds", n] => n.parse().with_context(|| format!("--rounds {n}: write a whole number")),
        _ => bail!("only --rounds N can be chosen, not {}", args.join(" ")),
    }
}

/// Measures each contender once per round, and returns every contender's measures.
pub fn in_turns<const N: usize>(
    rounds: usize,
    what: &str,
    mut contenders: [(&str, Box<dyn FnMut() -> Result<f64> + '_>); N],
) -> Result<[Vec<f64>; N]> {
    let mut all: [Vec<f64>; N] = std::array::from_fn(|_| Vec::new());
    for round in 1..=rounds {
        for (measures, (name, measure)) in all.iter_mut().zip(&mut contenders) {
            eprintln!("… {what}, round {round} of {rounds}: {name}");
            measures.push(measure()?);
        }
    }
    Ok(all)
}

pub fn median(measures: &[f64]) -> f64 {
    let mut sorted = measures.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

/// Returns the median over rounds of one contender's measure divided by another's in the same round.
pub fn ratio(ours: &[f64], theirs: &[f64]) -> f64 {
    let each: Vec<f64> = ours.iter().zip(theirs).map(|(a, b)| a / b).collect();
    median(&each)
}

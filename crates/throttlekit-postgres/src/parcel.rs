//! Asks as arrays for the server, and its replies as outcomes.

use throttlekit::Timestamp;
use throttlekit::rate::shared::{Correction, Kind, SharedForm};
use throttlekit::rate::{Need, State};
use throttlekit::store::{Charge, Charges, Outcome, Settlement, Sight, StoreError};

const CHARGE_NUMBERS: usize = 5;
const CORRECTION_NUMBERS: usize = 6;
const MICRO: u64 = 1_000;

/// One ask of one charge, for `admit_one`.
pub(crate) struct One<'a> {
    pub(crate) key: &'a str,
    pub(crate) kind: i32,
    pub(crate) numbers: [i64; CHARGE_NUMBERS],
}

/// Asks for `admit`.
pub(crate) struct Flight<'a> {
    pub(crate) keys: Vec<&'a str>,
    pub(crate) asks: Vec<i32>,
    pub(crate) slots: Vec<i32>,
    pub(crate) kinds: Vec<i32>,
    pub(crate) numbers: Vec<i64>,
}

/// Corrections for `settle`.
pub(crate) struct Corrections<'a> {
    pub(crate) keys: Vec<&'a str>,
    pub(crate) slots: Vec<i32>,
    pub(crate) kinds: Vec<i32>,
    pub(crate) owes: Vec<bool>,
    pub(crate) numbers: Vec<i64>,
}

impl<'a> One<'a> {
    /// The flight's only charge, if it has one only.
    pub(crate) fn of(asks: &[Charges<'a>]) -> Option<Self> {
        let [Charges { charges: [charge], .. }] = asks else { return None };
        Some(Self { key: charge.key, kind: kind(charge.form), numbers: charge_numbers(charge) })
    }
}

impl<'a> Flight<'a> {
    pub(crate) fn of(asks: &[Charges<'a>]) -> Self {
        let charges = || asks.iter().flat_map(|ask| ask.charges);
        let keys = sorted(charges().map(|charge| charge.key));
        let count = |ask: &Charges<'_>| match ask.need {
            Need::All => ask.charges.len() as i32,
            Need::Any => -(ask.charges.len() as i32),
        };
        Self {
            asks: asks.iter().map(count).collect(),
            slots: charges().map(|charge| slot(&keys, charge.key)).collect(),
            kinds: charges().map(|charge| kind(charge.form)).collect(),
            numbers: charges().flat_map(charge_numbers).collect(),
            keys,
        }
    }
}

impl<'a> Corrections<'a> {
    pub(crate) fn of(settlements: &[Settlement<'a>]) -> Self {
        let correction = |s: &Settlement<'a>| (*s, s.form.correction(s.mark, s.charged, s.actual));
        let all: Vec<_> = settlements
            .iter()
            .map(correction)
            .filter(|(_, correction)| *correction != Correction::Nothing)
            .collect();
        let keys = sorted(all.iter().map(|(s, _)| s.key));
        Self {
            slots: all.iter().map(|(s, _)| slot(&keys, s.key)).collect(),
            kinds: all.iter().map(|(s, _)| kind(s.form)).collect(),
            owes: all.iter().map(|(_, correction)| matches!(correction, Correction::Owe(_))).collect(),
            numbers: all.iter().flat_map(|(_, correction)| correction_numbers(correction)).collect(),
            keys,
        }
    }
}

/// Each key once, in the order of the server's collation "C", in which rows are taken.
pub(crate) fn sorted<'a>(keys: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut keys: Vec<_> = keys.collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Counted from one, as arrays are on the server.
fn slot(keys: &[&str], key: &str) -> i32 {
    keys.partition_point(|other| *other < key) as i32 + 1
}

pub(crate) fn kind(form: &SharedForm) -> i32 {
    match form.kind() {
        Kind::Gcra => 0,
        Kind::Window => 1,
        Kind::Month => 2,
        Kind::Sliding => 3,
        Kind::Log => 4,
    }
}

fn charge_numbers(charge: &Charge<'_>) -> [i64; CHARGE_NUMBERS] {
    filled(&charge.form.charge(charge.cost))
}

fn correction_numbers(correction: &Correction) -> [i64; CORRECTION_NUMBERS] {
    match correction {
        Correction::Nothing => [0; CORRECTION_NUMBERS],
        Correction::Refund(numbers) | Correction::Owe(numbers) => filled(numbers),
    }
}

fn filled<const N: usize>(numbers: &[i64]) -> [i64; N] {
    std::array::from_fn(|i| numbers.get(i).copied().unwrap_or(0))
}

/// The outcomes that a reply of `admit` or `admit_one` tells.
pub(crate) fn outcomes(asks: &[Charges<'_>], reply: &[i64]) -> Result<Vec<Outcome>, StoreError> {
    let mut reply = Reply(reply);
    asks.iter().map(|ask| outcome(ask, &mut reply)).collect()
}

fn outcome(ask: &Charges<'_>, reply: &mut Reply<'_>) -> Result<Outcome, StoreError> {
    let admitted = reply.number()? != 0;
    let now = reply.instant()?;
    let seen = |charge: &Charge<'_>| state(charge.key, charge.form.seen(reply.numbers()?));
    let states = ask.charges.iter().map(seen).collect::<Result<Vec<_>, _>>()?;
    Outcome::of(ask, &states, now, admitted)
}

/// What a reply of `peek` shows.
pub(crate) fn sight(charges: &[Charge<'_>], reply: &[i64]) -> Result<Sight, StoreError> {
    let mut reply = Reply(reply);
    let now = reply.instant()?;
    let full = |charge: &Charge<'_>| state(charge.key, charge.form.state(reply.numbers()?));
    Ok(Sight { now, states: charges.iter().map(full).collect::<Result<_, _>>()? })
}

fn state(key: &str, state: Option<State>) -> Result<State, StoreError> {
    state.ok_or_else(|| StoreError::bad_state(format_args!("{key}: not a state of its limit")))
}

/// The rest of a reply.
struct Reply<'a>(&'a [i64]);

impl<'a> Reply<'a> {
    fn number(&mut self) -> Result<i64, StoreError> {
        let (&number, rest) = self.0.split_first().ok_or_else(cut_short)?;
        self.0 = rest;
        Ok(number)
    }

    fn instant(&mut self) -> Result<Timestamp, StoreError> {
        let micros = u64::try_from(self.number()?).map_err(|_| cut_short())?;
        Ok(Timestamp::from_nanos(micros.saturating_mul(MICRO)))
    }

    fn numbers(&mut self) -> Result<&'a [i64], StoreError> {
        let count = usize::try_from(self.number()?).map_err(|_| cut_short())?;
        let (numbers, rest) = self.0.split_at_checked(count).ok_or_else(cut_short)?;
        self.0 = rest;
        Ok(numbers)
    }
}

fn cut_short() -> StoreError {
    StoreError::misconfigured("the functions on the server do not reply as this version's do")
}

//! Batches of requests as arrays for the server, and decoding of its replies.

use throttlekit::rate::shared::{Correction, ScriptEncoding, ScriptRule};
use throttlekit::rate::{Need, State, Timestamp};
use throttlekit::store::{Charge, Charges, Outcome, Settlement, Snapshot, StoreError};

pub(crate) const CHARGE_NUMBERS: usize = 6;
const CORRECTION_NUMBERS: usize = 7;

/// An encoded request that waits to be merged with others.
pub(crate) struct EncodedRequest {
    asks: Vec<i32>,
    charges: Vec<Packed>,
}

struct Packed {
    key: String,
    kind: i32,
    numbers: [i64; CHARGE_NUMBERS],
}

/// One request with one charge, for `admit_one`; or several, for `admit`.
pub(crate) enum Batch<'a> {
    One { key: &'a str, kind: i32, numbers: [i64; CHARGE_NUMBERS] },
    Many { keys: Vec<&'a str>, asks: Vec<i32>, slots: Vec<i32>, kinds: Vec<i32>, numbers: Vec<i64> },
}

/// Corrections for `settle`.
pub(crate) struct Corrections<'a> {
    pub(crate) keys: Vec<&'a str>,
    pub(crate) slots: Vec<i32>,
    pub(crate) kinds: Vec<i32>,
    pub(crate) owes: Vec<bool>,
    pub(crate) numbers: Vec<i64>,
}

impl EncodedRequest {
    /// Encodes requests, local calendars around `now`.
    pub(crate) fn of(asks: &[Charges<'_>], now: Timestamp) -> Self {
        let pack = |charge: &Charge<'_>| Packed {
            key: charge.key.into(),
            kind: kind(charge.form),
            numbers: charge_numbers(charge, now),
        };
        Self {
            asks: asks.iter().map(count).collect(),
            charges: asks.iter().flat_map(|ask| ask.charges).map(pack).collect(),
        }
    }

    /// Returns the keys of its charges, possibly with duplicates.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.charges.iter().map(|charge| charge.key.as_str())
    }

    /// Returns the number of its requests.
    pub(crate) fn asks(&self) -> usize {
        self.asks.len()
    }
}

impl<'a> Batch<'a> {
    pub(crate) fn merged(requests: &[&'a EncodedRequest]) -> Self {
        let charges = requests.iter().flat_map(|request| &request.charges);
        let charges: Vec<_> = charges.map(|c| (c.key.as_str(), c.kind, c.numbers)).collect();
        Self::with(requests.iter().flat_map(|request| &request.asks).copied().collect(), &charges)
    }

    fn with(asks: Vec<i32>, charges: &[(&'a str, i32, [i64; CHARGE_NUMBERS])]) -> Self {
        if let (&[1 | -1], &[(key, kind, numbers)]) = (&asks[..], charges) {
            return Self::One { key, kind, numbers };
        }
        let keys = sorted(charges.iter().map(|(key, ..)| *key));
        Self::Many {
            asks,
            slots: charges.iter().map(|(key, ..)| slot(&keys, key)).collect(),
            kinds: charges.iter().map(|(_, kind, _)| *kind).collect(),
            numbers: charges.iter().flat_map(|(.., numbers)| *numbers).collect(),
            keys,
        }
    }
}

/// Returns the number of charges of a request; negative if any may allow.
fn count(ask: &Charges<'_>) -> i32 {
    match ask.need {
        Need::All => ask.charges.len() as i32,
        Need::Any => -(ask.charges.len() as i32),
    }
}

/// Splits the reply to a batch into one part per request.
pub(crate) fn split(requests: &[&EncodedRequest], reply: &[i64]) -> Vec<Result<Vec<i64>, StoreError>> {
    let mut reply = Reply(reply);
    requests.iter().map(|request| part(request, &mut reply)).collect()
}

fn part(request: &EncodedRequest, reply: &mut Reply<'_>) -> Result<Vec<i64>, StoreError> {
    let before = reply.0;
    for ask in &request.asks {
        reply.number()?;
        reply.number()?;
        for _ in 0..ask.unsigned_abs() {
            reply.numbers()?;
        }
    }
    Ok(before[..before.len() - reply.0.len()].to_vec())
}

impl<'a> Corrections<'a> {
    pub(crate) fn of(settlements: &[Settlement<'a>], now: Timestamp) -> Self {
        let correction = |s: &Settlement<'a>| (*s, s.form.correction(s.mark, s.charged, s.actual, now));
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

/// Returns each key once, in the order of the server's collation "C", in which rows are locked.
pub(crate) fn sorted<'a>(keys: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut keys: Vec<_> = keys.collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Returns the one-based index of a key, as for arrays on the server.
pub(crate) fn slot(keys: &[&str], key: &str) -> i32 {
    keys.partition_point(|other| *other < key) as i32 + 1
}

pub(crate) fn kind(form: &ScriptEncoding) -> i32 {
    match form.kind() {
        ScriptRule::Gcra => 0,
        ScriptRule::Window => 1,
        // A month has an offset and no more; of a local calendar, two ends follow.
        ScriptRule::Month | ScriptRule::Local => 2,
        ScriptRule::Sliding => 3,
        ScriptRule::Log => 4,
        ScriptRule::Budget => -1,
        ScriptRule::BudgetMonth | ScriptRule::BudgetLocal => -2,
    }
}

/// The same for `peek`, which also returns the pace of a bucket to callers that support it.
pub(crate) fn looked_at(form: &ScriptEncoding) -> i32 {
    if form.kind() == ScriptRule::Gcra { 5 } else { kind(form) }
}

pub(crate) fn charge_numbers(charge: &Charge<'_>, now: Timestamp) -> [i64; CHARGE_NUMBERS] {
    filled(&charge.form.charge(charge.cost, now))
}

fn correction_numbers(correction: &Correction) -> [i64; CORRECTION_NUMBERS] {
    match correction {
        Correction::Nothing => [0; CORRECTION_NUMBERS],
        Correction::Refund(numbers) | Correction::Owe(numbers) => filled(numbers),
    }
}

pub(crate) fn filled<const N: usize>(numbers: &[i64]) -> [i64; N] {
    std::array::from_fn(|i| numbers.get(i).copied().unwrap_or(0))
}

/// Decodes the outcomes in a reply of `admit` or `admit_one`.
pub(crate) fn outcomes(asks: &[Charges<'_>], reply: &[i64]) -> Result<Vec<Outcome>, StoreError> {
    let mut reply = Reply(reply);
    asks.iter().map(|ask| outcome(ask, &mut reply)).collect()
}

fn outcome(ask: &Charges<'_>, reply: &mut Reply<'_>) -> Result<Outcome, StoreError> {
    let admitted = reply.number()? != 0;
    let now = reply.instant()?;
    let mut ends = Vec::with_capacity(ask.charges.len());
    let seen = |charge: &Charge<'_>| {
        let numbers = reply.numbers()?;
        ends.push(charge.form.stored_end(numbers));
        state(charge.key, charge.form.seen(numbers))
    };
    let states = ask.charges.iter().map(seen).collect::<Result<Vec<_>, _>>()?;
    Ok(Outcome::of(ask, &states, now, admitted)?.in_windows(ask, ends.into_iter()))
}

/// Decodes the states in a reply of `peek`.
pub(crate) fn sight(charges: &[Charge<'_>], reply: &[i64]) -> Result<Snapshot, StoreError> {
    let mut reply = Reply(reply);
    let now = reply.instant()?;
    let full = |charge: &Charge<'_>| state(charge.key, charge.form.state(reply.numbers()?));
    Ok(Snapshot { now, states: charges.iter().map(full).collect::<Result<_, _>>()? })
}

pub(crate) fn state(key: &str, state: Option<State>) -> Result<State, StoreError> {
    state.ok_or_else(|| StoreError::bad_state(format_args!("{key}: not a valid state of its limit")))
}

/// The remainder of a reply.
pub(crate) struct Reply<'a>(pub(crate) &'a [i64]);

impl<'a> Reply<'a> {
    pub(crate) fn number(&mut self) -> Result<i64, StoreError> {
        let (&number, rest) = self.0.split_first().ok_or_else(cut_short)?;
        self.0 = rest;
        Ok(number)
    }

    pub(crate) fn instant(&mut self) -> Result<Timestamp, StoreError> {
        let micros = u64::try_from(self.number()?).map_err(|_| cut_short())?;
        Ok(Timestamp::from_micros(micros))
    }

    pub(crate) fn numbers(&mut self) -> Result<&'a [i64], StoreError> {
        let count = usize::try_from(self.number()?).map_err(|_| cut_short())?;
        let (numbers, rest) = self.0.split_at_checked(count).ok_or_else(cut_short)?;
        self.0 = rest;
        Ok(numbers)
    }
}

pub(crate) fn cut_short() -> StoreError {
    StoreError::misconfigured(
        "unexpected reply of a function: upgrade the schema, or use the version of the program that matches \
         it",
    )
}

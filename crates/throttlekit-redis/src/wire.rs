//! Encoding of requests for scripts, and decoding of replies into states.

use redis::{Cmd, Value};
use throttlekit::clock::{Clock, WallClock};
use throttlekit::rate::{Need, Timestamp};
use throttlekit::store::{
    Charge, Charges, LeaseRequest, LeaseReturn, Leased, Outcome, RegionGrant, RegionRequest,
};
use throttlekit::store::{Settlement, Snapshot, StoreError, TooManyRegions};
use throttlekit_core::rate::Mark;
use throttlekit_core::rate::shared::{Correction, ScriptRule};

use crate::fence::{self, Fence};
use crate::script::ScriptText;

/// The command that calls a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Sha,
    Text,
}

impl By {
    /// Starts a call of a script.
    pub(crate) fn call(self, script: &ScriptText) -> Cmd {
        let mut cmd = Cmd::with_capacity(ARGS_ROOM, BYTES_ROOM);
        match self {
            Self::Sha => cmd.arg("EVALSHA").arg(&script.sha),
            Self::Text => cmd.arg("EVAL").arg(script.text),
        };
        cmd
    }
}

/// The first arguments of every script.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Preamble {
    /// The time to decide at, in tests; else the server's.
    pub(crate) now: Option<Timestamp>,
    pub(crate) grace_ms: u64,
}

impl Preamble {
    pub(crate) fn append(self, cmd: &mut Cmd) {
        match self.now {
            None => cmd.arg(""),
            Some(now) => cmd.arg(now.as_micros()),
        };
        cmd.arg(self.grace_ms);
    }
}

/// Initial capacity for a call of few keys, which avoids repeated allocation.
const ARGS_ROOM: usize = 16;
const BYTES_ROOM: usize = 256;

/// A call of a script, with its fence if there is one.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) script: &'a ScriptText,
    pub(crate) head: Preamble,
    pub(crate) fence: Option<Fence>,
}

impl Call<'_> {
    /// Returns the time around which local calendars are encoded. The server decides at its own.
    pub(crate) fn about_now(&self) -> Timestamp {
        self.head.now.unwrap_or_else(|| WallClock.now())
    }

    /// Starts a command on this many keys, which follow.
    pub(crate) fn on(&self, by: By, keys: usize) -> Cmd {
        let mut cmd = by.call(self.script);
        cmd.arg(keys);
        cmd
    }

    /// Appends the arguments that follow the keys.
    pub(crate) fn preamble(&self, cmd: &mut Cmd) {
        self.head.append(cmd);
    }

    /// Starts a command on these keys. With a fence: each key's seal next to it, then the lineage record.
    pub(crate) fn begin<'k>(&self, by: By, keys: impl Iterator<Item = &'k str> + Clone) -> Cmd {
        let count = keys.clone().count();
        let mut cmd = self.on(by, if self.fence.is_some() { 2 * count + 1 } else { count });
        keys.clone().for_each(|key| {
            cmd.arg(key);
        });
        if let Some(fence) = self.fence {
            keys.for_each(|key| {
                cmd.arg(fence::seal_of(key));
            });
            cmd.arg(fence.record);
        }
        self.preamble(&mut cmd);
        cmd
    }

    /// Appends the last argument: with a fence, the isolation.
    pub(crate) fn end(&self, mut cmd: Cmd) -> Cmd {
        if let Some(fence) = self.fence {
            cmd.arg(fence.isolation_micros);
        }
        cmd
    }
}

pub(crate) fn admit(call: Call<'_>, by: By, asks: &[&Charges<'_>]) -> Cmd {
    let keys = asks.iter().flat_map(|ask| ask.charges).map(|charge| charge.key);
    let mut cmd = call.begin(by, keys);
    let now = call.about_now();
    match (call.fence, asks) {
        (None, [ask]) if plain(&mut cmd, ask, now).is_some() => {}
        _ => charges(&mut cmd, asks, now),
    }
    call.end(cmd)
}

/// Appends the numbers of a request that the script has a short path for: a plain GCRA charge (`lua/one.lua`), or one
/// and a charge of a window on an even grid (`lua/two.lua`). Appends nothing if the request is any other.
fn plain(cmd: &mut Cmd, ask: &Charges<'_>, now: Timestamp) -> Option<()> {
    match ask.charges {
        [bucket] => {
            plain_gcra(bucket, now)?.iter().for_each(|&number| _ = cmd.arg(number));
        }
        [bucket, window] if ask.need == Need::All => {
            let (bucket, numbers) = (plain_gcra(bucket, now)?, plain_window(window, now)?);
            cmd.arg(letter(window.form.kind()));
            bucket.iter().chain(&numbers).for_each(|&number| _ = cmd.arg(number));
        }
        _ => return None,
    }
    Some(())
}

fn charges(cmd: &mut Cmd, asks: &[&Charges<'_>], now: Timestamp) {
    for ask in asks {
        let count = ask.charges.len() as i64;
        cmd.arg(if ask.need == Need::Any { -count } else { count });
        for charge in ask.charges {
            cmd.arg(letter(charge.form.kind()));
            charge.form.charge(charge.cost, now).iter().for_each(|&number| {
                cmd.arg(number);
            });
        }
    }
}

/// Returns time, depth and unit of a charge whose states are whole microseconds, since a unit is.
fn plain_gcra(charge: &Charge<'_>, now: Timestamp) -> Option<[i64; 3]> {
    if charge.form.kind() != ScriptRule::Gcra || charge.cost == 0 {
        return None;
    }
    match charge.form.charge(charge.cost, now)[..] {
        [time, _, depth, _, 1, unit] => Some([time, depth, unit]),
        _ => None,
    }
}

/// Returns cost, limit, length and lead of a charge of a window on an even grid.
fn plain_window(charge: &Charge<'_>, now: Timestamp) -> Option<[i64; 4]> {
    let is_even = matches!(charge.form.kind(), ScriptRule::Window | ScriptRule::Budget);
    if !is_even || charge.cost == 0 {
        return None;
    }
    charge.form.charge(charge.cost, now)[..].try_into().ok()
}

pub(crate) fn peek(call: Call<'_>, by: By, charges: &[&Charge<'_>]) -> Cmd {
    let mut cmd = call.begin(by, charges.iter().map(|charge| charge.key));
    for charge in charges {
        cmd.arg(letter(charge.form.kind()));
        if let Some((_, buckets)) = charge.form.shape() {
            cmd.arg(buckets);
        }
    }
    cmd
}

pub(crate) fn settle(call: Call<'_>, by: By, all: &[(&Settlement<'_>, Correction)]) -> Cmd {
    let mut cmd = call.begin(by, all.iter().map(|(settlement, _)| settlement.key));
    for (settlement, correction) in all {
        let (sign, mut numbers) = match correction {
            Correction::Refund(numbers) => ("-", numbers.to_vec()),
            Correction::Owe(numbers) => ("+", numbers.to_vec()),
            Correction::Nothing => continue,
        };
        if let (Correction::Refund(_), Some((length, _))) = (correction, settlement.form.shape()) {
            numbers.insert(2, length as i64);
        }
        cmd.arg(sign).arg(letter(settlement.form.kind()));
        numbers.iter().for_each(|&number| {
            cmd.arg(number);
        });
    }
    cmd
}

pub(crate) fn lease(call: Call<'_>, by: By, asks: &[&LeaseRequest<'_>]) -> Cmd {
    let mut cmd = call.begin(by, asks.iter().map(|ask| ask.key));
    let now = call.about_now();
    for ask in asks {
        cmd.arg(letter(ask.form.kind()));
        let want = ask.form.clamped(ask.want);
        ask.form.lending(want.least, now).iter().for_each(|&number| {
            cmd.arg(number);
        });
        cmd.arg(want.wants).arg(want.least).arg(want.share);
    }
    call.end(cmd)
}

pub(crate) fn grant(call: Call<'_>, by: By, ask: &RegionRequest<'_>) -> Cmd {
    let mut cmd = call.begin(by, std::iter::once(ask.key));
    cmd.arg("p").arg(letter(ask.form.kind()));
    ask.form.charge(0, call.about_now()).iter().for_each(|&number| {
        cmd.arg(number);
    });
    // At most the limit, which a script represents exactly.
    let wants = ask.wants.min(ask.form.limit().units());
    cmd.arg(ask.region).arg(ask.weight.get()).arg(wants);
    call.end(cmd)
}

pub(crate) fn give_back(call: Call<'_>, by: By, backs: &[&LeaseReturn<'_>]) -> Cmd {
    let mut cmd = call.on(by, 2 * backs.len());
    for given in backs {
        cmd.arg(given.key).arg(format!("{}:back:{:x}", given.key, given.id.0));
    }
    call.preamble(&mut cmd);
    for given in backs {
        let (mark, units) = (Mark(given.back.epoch.0), given.back.units);
        let Correction::Refund(numbers) = given.form.correction(mark, units, 0, Timestamp::EPOCH) else {
            continue;
        };
        numbers.iter().for_each(|&number| {
            cmd.arg(number);
        });
    }
    cmd
}

pub(crate) fn letter(kind: ScriptRule) -> &'static str {
    match kind {
        ScriptRule::Gcra => "g",
        ScriptRule::Window => "w",
        ScriptRule::Month => "m",
        ScriptRule::Budget => "b",
        ScriptRule::BudgetMonth => "n",
        ScriptRule::Local => "c",
        ScriptRule::BudgetLocal => "d",
        ScriptRule::Sliding => "s",
        ScriptRule::Log => "l",
    }
}

/// Decodes the outcomes of requests from the reply of the admit script: of each request, or its error.
pub(crate) fn outcomes(
    asks: &[&Charges<'_>],
    answer: &Value,
) -> Result<Vec<Result<Outcome, StoreError>>, StoreError> {
    if let ([ask], Value::Array(parts)) = (asks, answer) {
        match parts[..] {
            [Value::Int(now), Value::Int(tat)] => return plain_outcome(ask, now, &[[tat, 0]]),
            [Value::Int(now), Value::Int(tat), Value::Int(end), Value::Int(used)] => {
                return plain_outcome(ask, now, &[[tat, 0], [end, used]]);
            }
            _ => {}
        }
    }
    each(asks, answer, one_of_many)
}

/// Decodes the reply of a short path: the instant, negative if denied, and the states, negative where none was stored.
fn plain_outcome(
    ask: &Charges<'_>,
    now: i64,
    states: &[[i64; 2]],
) -> Result<Vec<Result<Outcome, StoreError>>, StoreError> {
    let seen = states.iter().map(|state| if state[0] < 0 { &[][..] } else { &state[..] });
    Ok(vec![outcome(ask, seen, instant(now.saturating_abs())?, now > 0)])
}

fn one_of_many(ask: &Charges<'_>, reply: &Value, now: Timestamp) -> Result<Outcome, StoreError> {
    let Value::Array(parts) = reply else { return Err(unexpected()) };
    let [Value::Int(admitted), states @ ..] = &parts[..] else { return Err(unexpected()) };
    if let (-1, [Value::BulkString(key)]) = (*admitted, states) {
        return Err(refused(key));
    }
    let states = states.iter().map(numbers).collect::<Result<Vec<_>, _>>()?;
    outcome(ask, states.iter().map(Vec::as_slice), now, *admitted == 1)
}

/// Decodes the reason why a request was refused: a fence, or a key that holds a foreign value.
pub(crate) fn refused(said: &[u8]) -> StoreError {
    fence::refusal(said).unwrap_or_else(|| StoreError::bad_state(String::from_utf8_lossy(said)))
}

fn outcome<'n>(
    ask: &Charges<'_>,
    seen: impl ExactSizeIterator<Item = &'n [i64]> + Clone,
    now: Timestamp,
    admitted: bool,
) -> Result<Outcome, StoreError> {
    if seen.len() != ask.charges.len() {
        return Err(unexpected());
    }
    let state = |(charge, numbers): (&Charge<'_>, &[i64])| {
        charge.form.seen(numbers).ok_or_else(|| StoreError::bad_state(charge.key))
    };
    let states = ask.charges.iter().zip(seen.clone()).map(state).collect::<Result<Vec<_>, _>>()?;
    let ends = ask.charges.iter().zip(seen).map(|(charge, numbers)| charge.form.stored_end(numbers));
    Ok(Outcome::of(ask, &states, now, admitted)?.in_windows(ask, ends))
}

/// Decodes the leased units from the reply of the lease script: for each request, or its error.
pub(crate) fn lent(
    asks: &[&LeaseRequest<'_>],
    answer: &Value,
) -> Result<Vec<Result<Leased, StoreError>>, StoreError> {
    each(asks, answer, one_lent)
}

fn one_lent(ask: &LeaseRequest<'_>, reply: &Value, now: Timestamp) -> Result<Leased, StoreError> {
    let Value::Array(parts) = reply else { return Err(unexpected()) };
    let [Value::Int(granted), state] = &parts[..] else { return Err(unexpected()) };
    if let (-1, Value::BulkString(said)) = (*granted, state) {
        return Err(refused(said));
    }
    let granted = u64::try_from(*granted).map_err(|_| unexpected())?;
    Leased::of(ask, &numbers(state)?, now, granted)
}

/// Decodes a region's grant from the reply of the pool script.
pub(crate) fn granted(ask: &RegionRequest<'_>, answer: &Value) -> Result<RegionGrant, StoreError> {
    let (now, replies) = split(answer)?;
    let [Value::Array(parts)] = replies else { return Err(unexpected()) };
    match parts[..] {
        [Value::Int(-1), Value::BulkString(ref said)] => Err(refused(said)),
        [Value::Int(-2)] => Err(StoreError::misconfigured(TooManyRegions)),
        _ => match numbers(&replies[0])?[..] {
            [granted, ends, held, share, others] => {
                RegionGrant::of(ask, [ends, held, share, others], now, granted)
            }
            _ => Err(unexpected()),
        },
    }
}

/// Decodes the states of keys from the reply of the peek script.
pub(crate) fn sight(charges: &[&Charge<'_>], answer: &Value) -> Result<Snapshot, StoreError> {
    let states = each(charges, answer, |charge, reply, _| {
        charge.form.state(&numbers(reply)?).ok_or_else(|| StoreError::bad_state(charge.key))
    });
    Ok(Snapshot { now: split(answer)?.0, states: states?.into_iter().collect::<Result<_, _>>()? })
}

/// Decodes a script's reply to each item and its instant; anything else is an error.
pub(crate) fn each<T, A>(
    items: &[&T],
    answer: &Value,
    read: impl Fn(&T, &Value, Timestamp) -> Result<A, StoreError>,
) -> Result<Vec<Result<A, StoreError>>, StoreError> {
    let (now, replies) = split(answer)?;
    if replies.len() != items.len() {
        return Err(unexpected());
    }
    Ok(items.iter().zip(replies).map(|(item, reply)| read(item, reply, now)).collect())
}

pub(crate) fn split(answer: &Value) -> Result<(Timestamp, &[Value]), StoreError> {
    let Value::Array(parts) = answer else { return Err(unexpected()) };
    let [Value::Int(now), rest @ ..] = &parts[..] else { return Err(unexpected()) };
    Ok((instant(*now)?, rest))
}

pub(crate) fn instant(micros: i64) -> Result<Timestamp, StoreError> {
    let micros = u64::try_from(micros).map_err(|_| unexpected())?;
    Ok(Timestamp::from_micros(micros))
}

pub(crate) fn numbers(value: &Value) -> Result<Vec<i64>, StoreError> {
    let Value::Array(values) = value else { return Err(unexpected()) };
    let number = |value: &Value| match value {
        Value::Int(number) => Ok(*number),
        _ => Err(unexpected()),
    };
    values.iter().map(number).collect()
}

pub(crate) fn unexpected() -> StoreError {
    StoreError::misconfigured("unexpected reply to a script; connect without a proxy")
}

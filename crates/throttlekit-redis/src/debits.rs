//! Encoding of debits for their script, and decoding of its reply.

use redis::{Cmd, Value};
use throttlekit::rate::Timestamp;
use throttlekit::store::{Debit, Debited, LastDebit, StoreError};

use crate::fence;
use crate::wire::{By, Call, each, instant, letter, numbers, refused, unexpected};

/// Returns the key that stores the last debit of a stream: next to the key that it charges.
fn name_of(debit: &Debit<'_>) -> String {
    format!("{}:debit:{:x}", debit.charge.key, debit.id.stream)
}

pub(crate) fn debit(call: Call<'_>, by: By, debits: &[&Debit<'_>]) -> Cmd {
    let count = debits.len();
    let mut cmd = call.on(by, if call.fence.is_some() { 3 * count + 1 } else { 2 * count });
    debits.iter().for_each(|debit| {
        cmd.arg(debit.charge.key);
    });
    debits.iter().for_each(|debit| {
        cmd.arg(name_of(debit));
    });
    if let Some(fence) = call.fence {
        debits.iter().for_each(|debit| {
            cmd.arg(fence::seal_of(debit.charge.key));
        });
        cmd.arg(fence.record);
    }
    call.preamble(&mut cmd);
    let now = call.about_now();
    for debit in debits {
        let charge = &debit.charge;
        cmd.arg(letter(charge.form.kind()));
        charge.form.charge(charge.cost, now).iter().for_each(|&number| {
            cmd.arg(number);
        });
        cmd.arg(debit.id.number).arg(debit.cost()).arg(debit.remembered().as_micros() as u64);
    }
    call.end(cmd)
}

/// Decodes the result of each debit.
pub(crate) fn debited(
    debits: &[&Debit<'_>],
    answer: &Value,
) -> Result<Vec<Result<Debited, StoreError>>, StoreError> {
    each(debits, answer, one)
}

fn one(debit: &Debit<'_>, reply: &Value, now: Timestamp) -> Result<Debited, StoreError> {
    let Value::Array(parts) = reply else { return Err(unexpected()) };
    let (found, repeated) = match &parts[..] {
        [Value::Int(-1), Value::BulkString(said)] => return Err(refused(said)),
        [Value::Int(3)] => return Err(StoreError::Stale(debit.id.number)),
        [Value::Int(2), Value::Int(then), Value::Int(cost), Value::Int(charged), state] => {
            let cost = u64::try_from(*cost).map_err(|_| unexpected())?;
            (last(debit, cost, instant(*then)?, *charged == 1, state)?, true)
        }
        [Value::Int(charged @ (0 | 1)), state] => {
            (last(debit, debit.cost(), now, *charged == 1, state)?, false)
        }
        _ => return Err(unexpected()),
    };
    debit.answer(&found, repeated)
}

fn last(
    debit: &Debit<'_>,
    cost: u64,
    now: Timestamp,
    admitted: bool,
    state: &Value,
) -> Result<LastDebit, StoreError> {
    let charge = &debit.charge;
    let state = charge.form.state(&numbers(state)?).ok_or_else(|| StoreError::bad_state(charge.key))?;
    Ok(LastDebit { number: debit.id.number, cost, now, state, admitted })
}

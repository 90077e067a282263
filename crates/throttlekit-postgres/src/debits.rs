//! Debits as arrays for the server, and decoding of its replies.

use std::sync::Arc;

use throttlekit::rate::Timestamp;
use throttlekit::store::{Debit, Debited, LastDebit, StoreError};
use tokio_postgres::types::Type;

use crate::batch::{CHARGE_NUMBERS, Reply, charge_numbers, kind, slot, sorted, state};
use crate::error::Failure;
use crate::store::Inner;
use crate::store_connections::Param;

impl Inner {
    /// Returns the result of each debit.
    pub(crate) async fn debit(
        self: &Arc<Self>,
        debits: &[Debit<'_>],
    ) -> Result<Vec<Result<Debited, StoreError>>, Failure> {
        let keys = sorted(debits.iter().map(|debit| debit.charge.key));
        let slots: Vec<i32> = debits.iter().map(|debit| slot(&keys, debit.charge.key)).collect();
        let kinds: Vec<i32> = debits.iter().map(|debit| kind(debit.charge.form)).collect();
        let numbers: Vec<i64> = debits.iter().flat_map(|debit| numbers_of(debit, self.about_now())).collect();
        let streams: Vec<String> = debits.iter().map(|debit| format!("{:032x}", debit.id.stream)).collect();
        let now = self.now();
        let params: [Param<'_>; 6] = [
            (&now, Type::INT8),
            (&keys, Type::TEXT_ARRAY),
            (&slots, Type::INT4_ARRAY),
            (&kinds, Type::INT4_ARRAY),
            (&numbers, Type::INT8_ARRAY),
            (&streams, Type::TEXT_ARRAY),
        ];
        let reply = self.numbers(&self.statements.debit, &params).await?;
        let mut reply = Reply(&reply);
        Ok(debits.iter().map(|debit| debited(debit, &mut reply)).collect())
    }
}

/// Encodes the charge, then the debit's number, its cost, and how long it is remembered.
fn numbers_of(debit: &Debit<'_>, now: Timestamp) -> [i64; CHARGE_NUMBERS + 3] {
    let [a, b, c, d, e, f] = charge_numbers(&debit.charge, now);
    let remember = debit.remembered().as_micros() as i64;
    [a, b, c, d, e, f, debit.id.number as i64, debit.cost() as i64, remember]
}

fn debited(debit: &Debit<'_>, reply: &mut Reply<'_>) -> Result<Debited, StoreError> {
    let key = debit.charge.key;
    let repeated = match reply.number()? {
        -1 => return Err(StoreError::bad_state(format_args!("{key}: a number is out of range"))),
        3 => return Err(StoreError::Stale(debit.id.number)),
        status => status == 2,
    };
    let (now, cost, admitted) = (reply.instant()?, reply.number()?, reply.number()? == 1);
    let state = state(key, debit.charge.form.state(reply.numbers()?))?;
    let cost = u64::try_from(cost).map_err(|_| StoreError::bad_state(key))?;
    debit.answer(&LastDebit { number: debit.id.number, cost, now, state, admitted }, repeated)
}

//! Leases: requests and returns as arrays for the server, and decoding of its replies.

use std::sync::Arc;

use throttlekit::rate::shared::{Correction, ScriptEncoding};
use throttlekit::rate::{Mark, Timestamp};
use throttlekit::store::{LeaseRequest, LeaseReturn, Leased, StoreError};
use tokio_postgres::types::Type;

use crate::batch::{CHARGE_NUMBERS, Reply, filled, kind, slot, sorted};
use crate::error::Failure;
use crate::store::Inner;
use crate::store_connections::Param;

impl Inner {
    /// Returns the lease for each request.
    pub(crate) async fn lend(
        self: &Arc<Self>,
        asks: &[LeaseRequest<'_>],
    ) -> Result<Vec<Result<Leased, StoreError>>, Failure> {
        let keys = sorted(asks.iter().map(|ask| ask.key));
        let slots: Vec<i32> = asks.iter().map(|ask| slot(&keys, ask.key)).collect();
        let kinds: Vec<i32> = asks.iter().map(|ask| kind(ask.form)).collect();
        let numbers: Vec<i64> = asks.iter().flat_map(|ask| numbers_of(ask, self.about_now())).collect();
        let now = self.now();
        let params: [Param<'_>; 5] = [
            (&now, Type::INT8),
            (&keys, Type::TEXT_ARRAY),
            (&slots, Type::INT4_ARRAY),
            (&kinds, Type::INT4_ARRAY),
            (&numbers, Type::INT8_ARRAY),
        ];
        let reply = self.numbers(&self.statements.lend, &params).await?;
        let mut reply = Reply(&reply);
        Ok(asks.iter().map(|ask| lent(ask, &mut reply)).collect())
    }

    /// Returns unspent units, for those returns that have an effect.
    pub(crate) async fn give_back(self: &Arc<Self>, backs: &[LeaseReturn<'_>]) -> Result<(), Failure> {
        let mut backs: Vec<_> = backs.iter().filter(|given| given.says_something()).collect();
        if backs.is_empty() {
            return Ok(());
        }
        backs.sort_by_key(|given| given.id);
        let keys = sorted(backs.iter().map(|given| given.key));
        let slots: Vec<i32> = backs.iter().map(|given| slot(&keys, given.key)).collect();
        let names: Vec<String> = backs.iter().map(|given| format!("{:032x}", given.id.0)).collect();
        let numbers: Vec<i64> = backs.iter().flat_map(|given| back_numbers(given)).collect();
        let params: [Param<'_>; 4] = [
            (&keys, Type::TEXT_ARRAY),
            (&slots, Type::INT4_ARRAY),
            (&names, Type::TEXT_ARRAY),
            (&numbers, Type::INT8_ARRAY),
        ];
        self.run(&self.statements.give_back, &params).await
    }
}

/// Encodes the limit, and the wanted units in numbers that fit.
fn numbers_of(ask: &LeaseRequest<'_>, now: Timestamp) -> [i64; CHARGE_NUMBERS + 3] {
    let form: &ScriptEncoding = ask.form;
    let want = form.clamped(ask.want);
    let [a, b, c, d, e, f] = filled(&form.lending(want.least, now));
    let [wants, least, share] = [want.wants, want.least, want.share].map(|number| number as i64);
    [a, b, c, d, e, f, wants, least, share]
}

/// Encodes the end of the window, and the units.
fn back_numbers(given: &LeaseReturn<'_>) -> [i64; 2] {
    match given.form.correction(Mark(given.back.epoch.0), given.back.units, 0, Timestamp::EPOCH) {
        Correction::Refund(numbers) => filled(&numbers),
        Correction::Nothing | Correction::Owe(_) => [0; 2],
    }
}

fn lent(ask: &LeaseRequest<'_>, reply: &mut Reply<'_>) -> Result<Leased, StoreError> {
    let (granted, now, numbers) = (reply.number()?, reply.instant()?, reply.numbers()?);
    let Ok(granted) = u64::try_from(granted) else {
        return Err(StoreError::bad_state(format_args!("{}: a number is out of range", ask.key)));
    };
    Leased::of(ask, numbers, now, granted)
}

//! Access to the store under test: direct, where every response can be compared, or through a limiter, as in
//! production.

use std::fmt::Debug;
use std::sync::Arc;

use throttlekit::limiter::Receipt;
use throttlekit::rate::Forecast;
use throttlekit::store::{Charge, Outcome, Settlement, Snapshot, Store, StoreError};
use throttlekit::{BuildError, Call, SharedLimiter};
use throttlekit_core::rate::{Need, Rule};

use super::policy::{KEYS, LIMIT_NAMES, Placed, Policy};
use super::reference::same_state;
use crate::trace::print_answer;

/// Reason why a scenario was not completed.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// A response differs from that of the rules.
    Differs { want: String, got: String },
    /// The store returned an error.
    Error(StoreError),
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Error(error)
    }
}

pub(super) type Heard = Result<(), Fault>;

pub(super) fn same<T: PartialEq + Debug>(want: &T, got: &T) -> Heard {
    if want == got {
        return Ok(());
    }
    Err(Fault::Differs { want: format!("{want:?}"), got: format!("{got:?}") })
}

/// Compares part by part, so that the first difference is reported separately.
pub(super) fn same_outcome(want: &Outcome, got: &Outcome) -> Heard {
    let Outcome { now, verdict, decisions, marks, guarantee } = want;
    same(now, &got.now)?;
    same(&decisions.len(), &got.decisions.len())?;
    for (limit, (want, got)) in decisions.iter().zip(&got.decisions).enumerate() {
        let told = |decision| format!("limit {limit}: {}", print_answer(decision));
        if want != got {
            return Err(Fault::Differs { want: told(want), got: told(got) });
        }
    }
    same(verdict, &got.verdict)?;
    same(marks, &got.marks)?;
    same(guarantee, &got.guarantee)
}

/// Calls a store, and compares its responses with those of the rules.
pub(super) trait Fixture {
    fn admit(
        &mut self,
        policy: &Policy,
        asks: &[Placed],
        want: &[Outcome],
    ) -> impl Future<Output = Heard> + Send;

    fn peek(&mut self, policy: &Policy, ask: &Placed, want: &Snapshot) -> impl Future<Output = Heard> + Send;

    fn forecast(
        &mut self,
        policy: &Policy,
        ask: &Placed,
        limit: usize,
        want: Forecast,
    ) -> impl Future<Output = Heard> + Send;

    /// Settles a charge. `receipt` counts the admitted requests from zero.
    fn settle(
        &mut self,
        receipt: usize,
        settlements: &[Settlement<'_>],
        actual: &[u64],
    ) -> impl Future<Output = Heard> + Send;

    fn reset(&mut self, ask: &Placed) -> impl Future<Output = Heard> + Send;
}

/// Direct access.
pub(super) struct Direct<S>(pub(super) Arc<S>);

impl<S: Store> Fixture for Direct<S> {
    async fn admit(&mut self, policy: &Policy, asks: &[Placed], want: &[Outcome]) -> Heard {
        let charges: Vec<_> = asks.iter().map(|ask| policy.charges(ask)).collect();
        let got = self.0.admit(&policy.flight(&charges)).await?;
        same(&want.len(), &got.len())?;
        want.iter().zip(&got).try_for_each(|(want, got)| same_outcome(want, got))
    }

    async fn peek(&mut self, policy: &Policy, ask: &Placed, want: &Snapshot) -> Heard {
        look(&*self.0, &policy.charges(ask), want).await
    }

    async fn forecast(&mut self, policy: &Policy, ask: &Placed, limit: usize, want: Forecast) -> Heard {
        let charge = policy.charges(ask)[limit];
        let sight = self.0.peek(&[charge]).await?;
        same(&1, &sight.states.len())?;
        same(&want, &charge.form.limit().forecast(&sight.states[0], charge.cost, sight.now))
    }

    async fn settle(&mut self, _: usize, settlements: &[Settlement<'_>], _: &[u64]) -> Heard {
        Ok(self.0.settle(settlements).await?)
    }

    async fn reset(&mut self, ask: &Placed) -> Heard {
        Ok(self.0.reset(&ask.names.iter().map(String::as_str).collect::<Vec<_>>()).await?)
    }
}

/// Reads keys and compares their states in full, and their remaining units.
pub(super) async fn look(store: &impl Store, charges: &[Charge<'_>], want: &Snapshot) -> Heard {
    let got = store.peek(charges).await?;
    same(&want.now, &got.now)?;
    same(&want.states.len(), &got.states.len())?;
    for (charge, (want, seen)) in charges.iter().zip(want.states.iter().zip(&got.states)) {
        let limit = charge.form.limit();
        if !same_state(limit, want, seen, got.now) {
            let told = |state| format!("{}: {state:?}", charge.key);
            return Err(Fault::Differs { want: told(want), got: told(seen) });
        }
        same(&limit.peek(want, got.now), &limit.peek(seen, got.now))?;
    }
    Ok(())
}

/// Access through a limiter. Limit `i` counts by the call's key `i`.
pub(super) struct Through<S> {
    limiter: SharedLimiter<Arc<S>>,
    /// For each admitted request, until it is settled.
    receipts: Vec<Option<Receipt>>,
}

impl<S: Store> Through<S> {
    pub(super) fn new(store: Arc<S>, policy: &Policy) -> Result<Self, BuildError> {
        let mut limits = policy.forms.iter().zip(LIMIT_NAMES).enumerate();
        let (_, (first, name)) = limits.next().expect("a policy has a limit");
        let mut builder = SharedLimiter::builder(store, &policy.name, *first.limit()).first_limit(0, name);
        for (index, (form, name)) in limits {
            builder = builder.limit_by(index, name, *form.limit());
        }
        if policy.need == Need::Any {
            builder = builder.any();
        }
        builder = match policy.home {
            Some(key) => builder.route_by(key),
            None => builder.one_slot(),
        };
        Ok(Self { limiter: builder.build()?, receipts: Vec::new() })
    }

    fn hear(&mut self, want: &Outcome, got: throttlekit::Answer) -> Heard {
        same(&None, &got.outage)?;
        same(&(want.now, want.verdict.decision), &(got.now, got.decision))?;
        same(&want.verdict.binding, &got.binding)?;
        same(&self.limiter.store().guarantee(), &got.guarantee)?;
        same(&want.verdict.decision.allowed, &got.receipt.is_some())?;
        if got.receipt.is_some() {
            self.receipts.push(got.receipt);
        }
        Ok(())
    }
}

/// The keys of a request after the first.
fn others(ask: &Placed) -> Vec<&'static [u8]> {
    ask.keys[1..].iter().map(|key| KEYS[usize::from(*key)]).collect()
}

fn call<'a>(ask: &'a Placed, others: &'a [&'a [u8]]) -> Call<'a> {
    Call::by(KEYS[usize::from(ask.keys[0])]).and(others).costs(&ask.costs)
}

impl<S: Store> Fixture for Through<S> {
    async fn admit(&mut self, _: &Policy, placed: &[Placed], want: &[Outcome]) -> Heard {
        let beside: Vec<_> = placed.iter().map(others).collect();
        let mut calls = placed.iter().zip(&beside).map(|(ask, others)| call(ask, others));
        let got = match placed {
            [_] => vec![self.limiter.check(calls.next().expect("one request")).await],
            _ => self.limiter.check_many(calls).await,
        };
        let got = got.into_iter().collect::<Result<Vec<_>, _>>()?;
        same(&want.len(), &got.len())?;
        want.iter().zip(got).try_for_each(|(want, got)| self.hear(want, got))
    }

    async fn peek(&mut self, policy: &Policy, ask: &Placed, want: &Snapshot) -> Heard {
        let got = self.limiter.peek_each(call(ask, &others(ask))).await?;
        let each = policy.forms.iter().zip(&want.states);
        same(&each.map(|(form, state)| form.limit().peek(state, want.now)).collect::<Vec<_>>(), &got)
    }

    /// A limiter of several limits forecasts for all of them together, so its store is called.
    async fn forecast(&mut self, policy: &Policy, ask: &Placed, limit: usize, want: Forecast) -> Heard {
        Direct(self.limiter.store().clone()).forecast(policy, ask, limit, want).await
    }

    async fn settle(&mut self, receipt: usize, _: &[Settlement<'_>], actual: &[u64]) -> Heard {
        let receipt = self.receipts[receipt].take().expect("each receipt is settled once");
        Ok(self.limiter.settle_each(receipt, actual).await?)
    }

    async fn reset(&mut self, ask: &Placed) -> Heard {
        Ok(self.limiter.reset(call(ask, &others(ask))).await?)
    }
}

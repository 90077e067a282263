//! The subjects of the examinations: the real policies, and the model with or without a bug.

use std::sync::Arc;

use throttlekit::clock::ManualClock;
use throttlekit::guard::Ending;
use throttlekit::internals::Mutex;
use throttlekit::observe::{Event, Observer};
use throttlekit::policy::Axes;
use throttlekit::store::StoreError;
use throttlekit::{Admission, Axis, Call, Decision, Permit, Policy, SharedPermit, SharedPolicy};

/// One call. Each limit has a key of its own, so that one can be probed where another denies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asked<'a> {
    /// The caller: the key of slots and shares, and of limits that use the first key.
    pub who: &'a str,
    /// The key of the rate, where it uses the second.
    pub rate: &'a str,
    /// The key of the cost, where it uses the third.
    pub tokens: &'a str,
    /// The expected cost.
    pub cost: u64,
    /// The value of the call.
    pub value: f64,
    /// The expected time in seconds for which it holds its slot.
    pub hold: Option<f64>,
}

impl<'a> Asked<'a> {
    /// Creates a call with one key for everything.
    pub fn by(key: &'a str, cost: u64) -> Self {
        Self { who: key, rate: key, tokens: key, cost, value: 1.0, hold: None }
    }

    fn call<'b>(&self, others: &'b [&'b [u8]]) -> Call<'b>
    where
        'a: 'b,
    {
        let call = Call::by(self.who).and(others).cost(self.cost).value(self.value);
        self.hold.map_or(call, |seconds| call.hold(seconds))
    }

    fn others(&self) -> [&'a [u8]; 2] {
        [self.rate.as_bytes(), self.tokens.as_bytes()]
    }
}

/// The response to a call.
#[derive(Debug)]
pub struct Heard<H> {
    /// The overall decision.
    pub decision: Decision,
    /// The decision of each axis, in order.
    pub said: [Option<Decision>; 5],
    /// The named axis.
    pub binding: Option<Axis>,
    /// True if the price denied.
    pub policy_denied: bool,
    /// Proof of admission.
    pub held: Option<H>,
}

/// The same without the permit, for comparison.
pub type Words = (Decision, [Option<Decision>; 5], Option<Axis>, bool, bool);

impl<H> Heard<H> {
    /// Returns the response without the permit.
    pub fn words(&self) -> Words {
        (self.decision, self.said, self.binding, self.policy_denied, self.held.is_some())
    }

    /// Maps the permit.
    pub fn map<J>(self, make: impl FnOnce(H) -> J) -> Heard<J> {
        let Self { decision, said, binding, policy_denied, held } = self;
        Heard { decision, said, binding, policy_denied, held: held.map(make) }
    }

    fn of(admission: Admission<H>) -> Self {
        let (binding, policy_denied) = blamed(admission.denied_by());
        let (decision, said) = (admission.decision(), said(admission.axes()));
        Self { decision, said, binding, policy_denied, held: admission.permit }
    }
}

fn said(axes: &Axes) -> [Option<Decision>; 5] {
    Axis::ALL.map(|axis| axes.get(axis).copied())
}

/// Returns the named axis, and `true` if it was the price, which is checked separately.
fn blamed(denied_by: Option<Axis>) -> (Option<Axis>, bool) {
    (denied_by.filter(|axis| *axis != Axis::Price), denied_by == Some(Axis::Price))
}

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The actual cost, if it was counted.
    pub actual: Option<u64>,
    /// The outcome.
    pub ending: Ending,
}

impl End {
    /// Success at the estimated cost.
    pub const WELL: Self = Self { actual: None, ending: Ending::Success };

    /// Returns the part of an estimate that stays charged.
    pub fn of(&self, estimate: u64) -> u64 {
        match (self.actual, self.ending) {
            (Some(actual), _) => actual,
            (None, Ending::Success) => estimate,
            (None, _) => 0,
        }
    }
}

/// A subject that decides calls.
pub trait Subject: Send + Sync {
    /// Proof of admission.
    type Held: Send;

    /// Decides a call, and charges it if every axis allows.
    fn admit(&self, ask: &Asked<'_>) -> impl Future<Output = Result<Heard<Self::Held>, StoreError>> + Send;

    /// Ends the call, and waits until that is settled.
    fn end(&self, held: Self::Held, end: End) -> impl Future<Output = Result<(), StoreError>> + Send;
}

impl Subject for Arc<Policy<ManualClock>> {
    type Held = Permit<'static, ManualClock>;

    async fn admit(&self, ask: &Asked<'_>) -> Result<Heard<Self::Held>, StoreError> {
        Ok(Heard::of(self.admit_owned(ask.call(&ask.others()))))
    }

    async fn end(&self, mut held: Self::Held, end: End) -> Result<(), StoreError> {
        if let Some(actual) = end.actual {
            held.settle(actual);
        }
        match end.ending {
            Ending::Success => held.success(),
            Ending::Dropped => held.dropped(),
            Ending::Ignored => held.ignored(),
        }
        Ok(())
    }
}

impl Subject for SharedPolicy {
    type Held = SharedPermit;

    async fn admit(&self, ask: &Asked<'_>) -> Result<Heard<SharedPermit>, StoreError> {
        Ok(Heard::of(Self::admit(self, ask.call(&ask.others())).await?))
    }

    async fn end(&self, mut held: SharedPermit, end: End) -> Result<(), StoreError> {
        if let Some(actual) = end.actual {
            held.settle(actual);
        }
        held.close(end.ending).await
    }
}

/// A decision as reported to an observer.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// The caller.
    pub key: Vec<u8>,
    /// The cost.
    pub cost: u64,
    /// The decision.
    pub decision: Decision,
    /// The named axis.
    pub binding: Option<Axis>,
    /// True if the price denied.
    pub policy_denied: bool,
}

/// An observer that records decisions.
#[derive(Debug, Default)]
pub struct Watch(Mutex<Vec<Told>>);

impl Watch {
    /// Returns and clears the recorded decisions.
    pub fn take(&self) -> Vec<Told> {
        std::mem::take(&mut self.0.lock())
    }
}

impl Observer for Watch {
    fn observe(&self, event: &Event<'_>) {
        let &Event { key, cost, decision, denied_by, .. } = event;
        let (binding, policy_denied) = blamed(denied_by);
        let told = Told { key: key.into(), cost, decision, binding, policy_denied };
        self.0.lock().push(told);
    }
}

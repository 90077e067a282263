//! Whatever answers calls over several axes: the real policies, and the model with or without a bug.

use std::sync::Arc;

use throttlekit::clock::ManualClock;
use throttlekit::guard::Ending;
use throttlekit::internals::Mutex;
use throttlekit::observe::{Event, Observer};
use throttlekit::policy::Axes;
use throttlekit::store::StoreError;
use throttlekit::{Admission, Axis, Call, Decision, Permit, Policy, SharedPermit, SharedPolicy};

/// One call. Each of the limits goes by a key of its own, so that one can be looked at where another denies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asked<'a> {
    /// Who asks: slots and shares go by it, and limits that go by the first key.
    pub who: &'a str,
    /// By which the rate goes, where it goes by the second.
    pub rate: &'a str,
    /// By which the cost goes, where it goes by the third.
    pub tokens: &'a str,
    /// What it is expected to cost.
    pub cost: u64,
    /// What it is worth.
    pub value: f64,
    /// For how many seconds it is expected to hold its slot.
    pub hold: Option<f64>,
}

impl<'a> Asked<'a> {
    /// A call that goes by one key.
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

/// What was answered.
#[derive(Debug)]
pub struct Heard<H> {
    /// The one answer.
    pub decision: Decision,
    /// What each axis said, in order.
    pub said: [Option<Decision>; 5],
    /// The axis that is named.
    pub binding: Option<Axis>,
    /// Whether the price denied.
    pub policy_denied: bool,
    /// Proof of admission.
    pub held: Option<H>,
}

/// The same without what is held, to compare.
pub type Words = (Decision, [Option<Decision>; 5], Option<Axis>, bool, bool);

impl<H> Heard<H> {
    /// All that was said.
    pub fn words(&self) -> Words {
        (self.decision, self.said, self.binding, self.policy_denied, self.held.is_some())
    }

    /// The same with what is held made into something else.
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

/// Returns the axis that is named, and whether it was the price, which is judged apart.
fn blamed(denied_by: Option<Axis>) -> (Option<Axis>, bool) {
    (denied_by.filter(|axis| *axis != Axis::Price), denied_by == Some(Axis::Price))
}

/// How the work of a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// What it came to, if that was counted.
    pub actual: Option<u64>,
    /// With which word.
    pub ending: Ending,
}

impl End {
    /// It went well, and the estimate stands.
    pub const WELL: Self = Self { actual: None, ending: Ending::Success };

    /// What stays charged of an estimate.
    pub fn of(&self, estimate: u64) -> u64 {
        match (self.actual, self.ending) {
            (Some(actual), _) => actual,
            (None, Ending::Success) => estimate,
            (None, _) => 0,
        }
    }
}

/// Whatever answers calls.
pub trait Subject: Send + Sync {
    /// Proof of admission.
    type Held: Send;

    /// Answers a call, and charges it if every axis allows.
    fn admit(&self, ask: &Asked<'_>) -> impl Future<Output = Result<Heard<Self::Held>, StoreError>> + Send;

    /// Ends the work, and waits until that is settled.
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

/// What was told of one decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// Who asked.
    pub key: Vec<u8>,
    /// At what cost.
    pub cost: u64,
    /// The answer.
    pub decision: Decision,
    /// The axis that is named.
    pub binding: Option<Axis>,
    /// Whether the price denied.
    pub policy_denied: bool,
}

/// Who writes down what it is told.
#[derive(Debug, Default)]
pub struct Watch(Mutex<Vec<Told>>);

impl Watch {
    /// All that it was told since it was last asked.
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

//! Limits and a fair share of this process, among shared axes.

use std::future::ready;
use std::sync::Arc;

use throttlekit_core::Decision;

use super::step::{Bill, Charged, Job, Later, OwnedCall, Step};
use crate::admit::LimitInfo;
use crate::clock::SystemClock;
use crate::policy::Axes;
use crate::policy::fairness::{Fairness, Portion};
use crate::policy::local::{Local, Marks};
use crate::store::StoreError;
use crate::{Axis, Guarantee, LimitName};

/// Limits of one axis, in process.
pub(super) struct LocalStep {
    pub(super) axis: Axis,
    pub(super) local: Local<SystemClock>,
}

struct LocalBill {
    step: Arc<LocalStep>,
    marks: Marks,
    estimate: u64,
    /// The last debit and its charge positions, until it is confirmed.
    unconfirmed: Option<(u64, Marks)>,
    /// Name of the limit that denied the last debit.
    denied: Option<LimitName>,
    open: bool,
}

impl Step for LocalStep {
    fn axes(&self) -> (Axis, Axis) {
        (self.axis, self.axis)
    }

    fn hands_back(&self) -> bool {
        self.local.limits().all(|(_, limit)| limit.hands_back())
    }

    fn limits(&self) -> Vec<LimitInfo> {
        self.local.limits().map(|(axis, limit)| axis.by(0).describe(limit)).collect()
    }

    fn charge(self: Arc<Self>, call: Arc<OwnedCall>) -> Later<'static, Result<Charged, StoreError>> {
        let (mut axes, mut guarantee) = (Axes::default(), Guarantee::Exact);
        let others = call.others();
        let mut marks = Marks::NONE;
        let said = (&mut axes, &mut guarantee);
        let allowed = self.local.charge(&call.borrowed(&others), said, &mut marks, |_| true);
        let bill = || -> Box<dyn Bill> {
            let step = self.clone();
            let estimate = call.estimate;
            Box::new(LocalBill { step, marks, estimate, unconfirmed: None, denied: None, open: true })
        };
        let bill = allowed.then(bill);
        Box::pin(ready(Ok(Charged { axes, guarantee, outage: None, bill })))
    }
}

impl Bill for LocalBill {
    fn debit(&mut self, tokens: u64) -> Later<'_, Result<(Decision, Guarantee), StoreError>> {
        let debited = self.step.local.debit_held(&self.marks, tokens, None::<fn() -> Decision>);
        self.unconfirmed = debited.decision.allowed.then_some((tokens, debited.went));
        self.denied = debited.limit_name;
        Box::pin(ready(Ok((debited.decision, debited.guarantee))))
    }

    fn limit_name(&self) -> Option<LimitName> {
        self.denied
    }

    fn confirm(&mut self) {
        self.unconfirmed = None;
    }

    fn reject(&mut self) -> Option<Job> {
        let (tokens, went) = self.unconfirmed.take()?;
        self.step.local.settle(&went, tokens, 0);
        None
    }

    fn close(&mut self, used: Option<u64>) -> Option<Job> {
        self.reject();
        if std::mem::take(&mut self.open) {
            match used {
                Some(used) => self.step.local.settle(&self.marks, self.estimate, used),
                None => self.step.local.cancel(&self.marks, self.estimate),
            }
        }
        None
    }
}

impl Drop for LocalBill {
    fn drop(&mut self) {
        self.close(None);
    }
}

/// A fair share, in process.
pub(super) struct FairnessStep {
    pub(super) fairness: Box<dyn Fairness>,
    /// Index of the key that names the tenant, or the root of a tree.
    pub(super) key: usize,
}

struct FairnessBill {
    step: Arc<FairnessStep>,
    portion: Portion,
    estimate: u64,
    unconfirmed: Option<(u64, Portion)>,
    open: bool,
}

impl Step for FairnessStep {
    fn axes(&self) -> (Axis, Axis) {
        (Axis::Fairness, Axis::Fairness)
    }

    fn hands_back(&self) -> bool {
        true
    }

    fn limits(&self) -> Vec<LimitInfo> {
        vec![self.fairness.limit()]
    }

    fn charge(self: Arc<Self>, call: Arc<OwnedCall>) -> Later<'static, Result<Charged, StoreError>> {
        let estimate = call.estimate;
        let others = call.others();
        let called = call.borrowed_from(self.key, &others);
        let (decision, portion) = self.fairness.charge(&called, self.fairness.weight(&called));
        let mut axes = Axes::default();
        axes.record(Axis::Fairness, decision);
        let bill = |portion| -> Box<dyn Bill> {
            Box::new(FairnessBill { step: self.clone(), portion, estimate, unconfirmed: None, open: true })
        };
        let bill = portion.map(bill);
        Box::pin(ready(Ok(Charged { axes, guarantee: Guarantee::Exact, outage: None, bill })))
    }
}

impl Bill for FairnessBill {
    fn debit(&mut self, tokens: u64) -> Later<'_, Result<(Decision, Guarantee), StoreError>> {
        let decision = self.step.fairness.debit(&self.portion, tokens);
        let went = || (tokens, self.portion.in_window(decision.reset_at));
        self.unconfirmed = decision.allowed.then(went);
        Box::pin(ready(Ok((decision, Guarantee::Exact))))
    }

    fn confirm(&mut self) {
        self.unconfirmed = None;
    }

    fn reject(&mut self) -> Option<Job> {
        let (tokens, went) = self.unconfirmed.take()?;
        self.step.fairness.settle(&went, tokens, 0);
        None
    }

    fn close(&mut self, used: Option<u64>) -> Option<Job> {
        self.reject();
        if std::mem::take(&mut self.open) {
            self.step.fairness.settle(&self.portion, self.estimate, used.unwrap_or(0));
        }
        None
    }
}

impl Drop for FairnessBill {
    fn drop(&mut self) {
        self.close(None);
    }
}

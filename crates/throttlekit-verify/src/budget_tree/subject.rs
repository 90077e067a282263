//! The budgets of one policy as users build them, and the same with a seeded bug.

use std::sync::Arc;
use std::time::Duration;

use throttlekit::limiter::SharedLimiterBuilder;
use throttlekit::rate::shared::ScriptEncoding;
use throttlekit::rate::{Settle, State};
use throttlekit::store::{Charge, DebitId, KeySpace, Store, StoreError};
use throttlekit::{Axis, Call, Limit, SharedLimiter, SharedPermit, SharedPolicy};

use super::model::Node;
use super::scenario::{Level, Scenario};
use crate::budget::Lossy;

throttlekit_conformance::bugs! {
    /// A bug of a tree of budgets.
    pub enum TreeBug {
        OneByOne: "Each budget is charged by itself, and a denial leaves the charges before it.",
        ParentIsFree: "A run is not counted on the runs that it is a part of.",
        KeyCountsTwice: "A run that is its own parent is counted twice.",
        SendsUnderAnotherId: "A debit that is sent again has another id.",
        SilenceIsDenial: "A debit without a response is given up, though it may be charged.",
        TotalResets: "A budget for all time resets every hour.",
        EdgeIsDenied: "A debit beyond what is left is denied.",
        NothingIsSettled: "What was reserved and not used stays charged.",
        FirstIsSettled: "What was reserved and not used is returned to the first budget alone.",
    }
}

/// A call that no response came for is sent again this often.
const TRIES_MAX: u64 = 64;

/// The budgets of a scenario over a store.
pub struct Subject<S: Store> {
    bug: Option<TreeBug>,
    store: Arc<S>,
    policy: String,
    debits: SharedLimiter<Lossy<S>>,
    work: SharedPolicy,
    /// Each budget by each of its keys, with the index of that key. For bugs.
    each: Vec<(usize, SharedLimiter<Arc<S>>)>,
}

impl<S: Store> Subject<S> {
    /// Builds the budgets. The policy's name must be new to the store.
    pub fn new(store: &Arc<S>, policy: &str, scenario: &Scenario, seed: u64, bug: Option<TreeBug>) -> Self {
        let levels: Vec<_> = scenario.levels.iter().map(|level| changed(level, bug)).collect();
        let lossy = |one_in| Lossy::new(store.clone(), one_in, seed);
        let on: Vec<_> =
            levels.iter().flat_map(|(level, _)| &level.by).map(|by| Axis::Cost.by(*by)).collect();
        let work = SharedPolicy::builder(lossy(0), policy).with(on, group(lossy(0), policy, &levels));
        let alone = |((level, limit), by): (&(Level, Limit), usize)| {
            let limiter = SharedLimiter::builder(store.clone(), policy, *limit);
            (by, limiter.first_limit(by, &level.name).one_slot().build().expect("a budget"))
        };
        let each = levels.iter().flat_map(|level| level.0.by.iter().map(move |by| (level, *by)));
        Self {
            bug,
            store: store.clone(),
            policy: policy.into(),
            debits: group(lossy(6), policy, &levels),
            work: work.build().expect("budgets"),
            each: each.map(alone).collect(),
        }
    }

    /// Debits all budgets, again and again until the store responds. Returns whether it was allowed.
    pub async fn debit(&self, keys: &[&str], tokens: u64, mut id: DebitId) -> bool {
        match self.bug {
            Some(TreeBug::OneByOne) => return self.debit_each(keys, tokens, false).await,
            Some(TreeBug::KeyCountsTwice) => return self.debit_each(keys, tokens, true).await,
            _ => {}
        }
        let call = Call::by(keys[0]).and(&keys[1..]).cost(tokens);
        for again in 0..TRIES_MAX {
            if self.bug == Some(TreeBug::SendsUnderAnotherId) {
                id.number += again << 32;
            }
            let answer = self.debits.debit(call, id).await.expect("no error but an outage");
            if answer.outage.is_none() {
                return answer.decision.allowed;
            }
            if self.bug == Some(TreeBug::SilenceIsDenial) {
                return false;
            }
        }
        panic!("the network loses one call in six, and lost {TRIES_MAX} in a row");
    }

    /// Debits each budget by itself; or looks at all first, and counts each of the call's keys.
    async fn debit_each(&self, keys: &[&str], tokens: u64, looks: bool) -> bool {
        let call = Call::by(keys[0]).and(&keys[1..]).cost(tokens);
        let bys = || self.each.iter().filter(|(by, _)| !keys[*by].is_empty());
        for (_, limiter) in bys().filter(|_| looks) {
            if !limiter.peek(call).await.expect("the store answers").decision.allowed {
                return false;
            }
        }
        for (_, limiter) in bys() {
            let answer = limiter.check(call).await.expect("the store answers");
            if !answer.decision.allowed {
                return false;
            }
        }
        true
    }

    /// Admits work.
    pub async fn admit(&self, keys: &[&str], estimate: u64) -> Option<SharedPermit> {
        let call = Call::by(keys[0]).and(&keys[1..]).cost(estimate);
        self.work.admit(call).await.expect("no call is lost").permit
    }

    /// Ends work, and waits until it is settled.
    pub async fn settle(
        &self,
        keys: &[&str],
        mut permit: SharedPermit,
        unused: u64,
    ) -> Result<(), StoreError> {
        // Without a debit, the estimate would count as used.
        let used = permit.used();
        permit.settle(used);
        if !matches!(self.bug, Some(TreeBug::NothingIsSettled | TreeBug::FirstIsSettled)) {
            return permit.close(throttlekit::guard::Ending::Success).await;
        }
        std::mem::forget(permit);
        if self.bug == Some(TreeBug::FirstIsSettled) {
            self.each[0].1.take_back(Call::by(keys[0]).and(&keys[1..]).cost(unused)).await?;
        }
        Ok(())
    }

    /// Returns the tokens that the store has charged to a budget and key in its window.
    pub async fn charged(&self, scenario: &Scenario, (place, key): Node) -> u64 {
        let (level, limit) = changed(&scenario.levels[place], self.bug);
        let form = ScriptEncoding::of(&limit).expect("of whole microseconds");
        let key = KeySpace::new("tk", &self.policy, &level.name, &form).key(b"", key.as_bytes());
        let seen = self.store.peek(&[Charge { key: &key, form: &form, cost: 1 }]).await;
        let seen = seen.expect("the store answers");
        match seen.states[0] {
            State::Count(count) if count.window == limit.mark(&State::default(), seen.now).0 => count.used,
            _ => 0,
        }
    }
}

/// Returns the budget as a subject with this bug builds it.
fn changed(level: &Level, bug: Option<TreeBug>) -> (Level, Limit) {
    let mut level = level.clone();
    match bug {
        Some(TreeBug::ParentIsFree) => level.by.truncate(1),
        Some(TreeBug::TotalResets) if level.window.is_none() => {
            level.window = Some(Duration::from_secs(3_600));
        }
        _ => {}
    }
    let mut limit = level.limit();
    if bug == Some(TreeBug::EdgeIsDenied) {
        limit = limit.uncrossed();
    }
    (level, limit)
}

fn group<S: Store>(store: Lossy<S>, policy: &str, levels: &[(Level, Limit)]) -> SharedLimiter<Lossy<S>> {
    let also = |level: &Level| level.by[1..].to_vec();
    let [(first, limit), others @ ..] = levels else { panic!("a scenario has two budgets at least") };
    let mut builder = SharedLimiter::builder(store, policy, *limit).first_limit(first.by[0], &first.name);
    builder = also(first).into_iter().fold(builder, SharedLimiterBuilder::also_by);
    for (level, limit) in others {
        builder = builder.limit_by(level.by[0], &level.name, *limit);
        builder = also(level).into_iter().fold(builder, SharedLimiterBuilder::also_by);
    }
    builder.one_slot().build().expect("budgets")
}

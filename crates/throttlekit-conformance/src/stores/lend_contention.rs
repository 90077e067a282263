//! Stress test: one key of one window, leased to many tasks that return what they do not spend. Never more than the
//! limit is leased, and no unit is lost.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use throttlekit::Limit;
use throttlekit::store::{Charge, Charges, KeySpace, LeaseRequest, LeaseReturn, Leased, Store};
use throttlekit_core::lease::{Return, ReturnId, Term, Want};
use throttlekit_core::rate::Need;
use throttlekit_core::rate::shared::ScriptEncoding;

use crate::Dice;

const LENDERS: u64 = 32;
const ROUNDS: u64 = 25;
/// Fewer than all of them want at once.
const LIMIT: u64 = 500;
const WANTS_MAX: u64 = 60;
/// Long enough that no stress test reaches its end.
const WINDOW: Duration = Duration::from_secs(30 * 86_400);

/// The result of the stress test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LendContention {
    /// The limit of the window.
    pub limit: u64,
    /// Maximum number of units out at once, leases and admissions.
    pub most_out: u64,
    /// Units out in the end, when no more were available.
    pub out: u64,
    /// Units leased in total, some of them many times.
    pub lent: u64,
    /// Leases of less than requested.
    pub parts: u64,
}

/// Tasks lease, spend, and return units; some request strict decisions. Every return arrives twice.
///
/// # Panics
///
/// If the store is unavailable.
pub async fn lend_contention<S: Store + Clone>(store: S, policy: &str) -> LendContention {
    let limit = Limit::fixed_window(LIMIT, WINDOW).expect("a window");
    let form = ScriptEncoding::of(&limit).expect("of whole microseconds");
    let key = KeySpace::new("tk", policy, "", &form).key(b"hot", b"hot");
    let contenders = Arc::new(Contenders { store, key, form, tally: Tally::default() });
    let tasks: Vec<_> = (0..LENDERS).map(|task| tokio::spawn(contenders.clone().lender(task))).collect();
    for task in tasks {
        task.await.expect("a task of the test does not panic");
    }
    while contenders.lease(LIMIT, 1).await.is_some() {}
    let Tally { out, most_out, lent, parts } = &contenders.tally;
    let [most_out, out, lent, parts] = [most_out, out, lent, parts].map(|number| number.load(SeqCst));
    LendContention { limit: LIMIT, most_out, out, lent, parts }
}

struct Contenders<S> {
    store: S,
    key: String,
    form: ScriptEncoding,
    tally: Tally,
}

/// A unit is counted as out after the store has leased it, and no longer before its return is sent to the store. So the
/// store has at any moment at least as many out as are counted here: more than the limit here is more than it there.
#[derive(Default)]
struct Tally {
    out: AtomicU64,
    most_out: AtomicU64,
    lent: AtomicU64,
    parts: AtomicU64,
}

impl<S: Store> Contenders<S> {
    async fn lender(self: Arc<Self>, task: u64) {
        let mut dice = Dice::new(task);
        for round in 0..ROUNDS {
            if dice.once_in(8) {
                self.admit().await;
            }
            let share = dice.pick(&[1, 1, 3]);
            let Some(lent) = self.lease(dice.between(1, WANTS_MAX), share).await else { continue };
            let spent = if dice.once_in(16) { dice.between(0, lent.loan.granted) } else { 0 };
            self.give_back(task * ROUNDS + round, &lent, lent.loan.granted - spent).await;
        }
    }

    async fn lease(&self, wants: u64, share: u64) -> Option<Leased> {
        let want = Want { wants, least: 1, share };
        let ask = LeaseRequest { key: &self.key, form: &self.form, term: Term::Window, want };
        let lent = self.store.lease(&[ask]).await.pop().expect("an answer").expect("a loan or none");
        let granted = lent.loan.granted;
        self.tally.lent.fetch_add(granted, SeqCst);
        self.tally.parts.fetch_add(u64::from((1..wants).contains(&granted)), SeqCst);
        self.tally.goes_out(granted);
        (granted > 0).then_some(lent)
    }

    async fn admit(&self) {
        let charges = [Charge { key: &self.key, form: &self.form, cost: 1 }];
        let asks = [Charges { need: Need::All, charges: &charges }];
        let outcomes = self.store.admit(&asks).await.expect("the store answers");
        self.tally.goes_out(outcomes[0].verdict.decision.allowed.into());
    }

    /// Returns units twice at once, as a network may deliver them.
    async fn give_back(self: &Arc<Self>, number: u64, lent: &Leased, units: u64) {
        let mut hash = DefaultHasher::new();
        self.key.hash(&mut hash);
        let id = ReturnId((u128::from(hash.finish()) << 64) | u128::from(number));
        let back = Return { epoch: lent.loan.epoch, units };
        self.tally.out.fetch_sub(units, SeqCst);
        let copy = tokio::spawn(self.clone().hand_back(id, back));
        self.clone().hand_back(id, back).await;
        copy.await.expect("a task of the test does not panic");
    }

    async fn hand_back(self: Arc<Self>, id: ReturnId, back: Return) {
        let given = LeaseReturn { key: &self.key, form: &self.form, id, back };
        self.store.give_back(&[given]).await.expect("the store takes it back");
    }
}

impl Tally {
    fn goes_out(&self, units: u64) {
        let out = self.out.fetch_add(units, SeqCst) + units;
        self.most_out.fetch_max(out, SeqCst);
    }
}

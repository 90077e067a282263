//! Gateways that meter wrongly, to show that the law can fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use throttlekit::store::{DebitId, KeySpace, LeaseAsk, MemoryStore, Store, Term, Want};
use throttlekit::{Ask, Limit, SharedLimiter};
use throttlekit_core::rate::shared::SharedForm;

use super::gateway::told;
use super::{Chunks, Gateway, KEY, Lossy, Setup, Told, WINDOW, Way, run_with};

/// What is wrong with a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetBug {
    /// A node lets a debit cross what it was lent.
    NodeCrosses,
    /// What is sent again has a name of its own.
    SendsUnderAnotherName,
    /// What is sent again has no name.
    SendsWithoutName,
    /// No answer is taken for a yes.
    SilenceIsYes,
    /// Looks whether anything is left, lets pass, and charges afterwards.
    LooksFirst,
    /// A debit beyond what is left is refused, and so is not charged.
    EdgeRefused,
}

/// Every bug with its name, and a fleet that shows it.
pub const BUDGET_BUGS: [(&str, BudgetBug, Setup); 6] = {
    use BudgetBug::*;
    let chunks = Chunks::Of(16);
    let strict = Setup { gateways: 4, streams: 8, chunks, way: Way::Strict, loses: false };
    let lossy = Setup { loses: true, ..strict };
    [
        ("node_crosses", NodeCrosses, Setup { way: Way::Leased, ..strict }),
        ("sends_under_another_name", SendsUnderAnotherName, lossy),
        ("sends_without_name", SendsWithoutName, lossy),
        ("silence_is_yes", SilenceIsYes, lossy),
        ("looks_first", LooksFirst, strict),
        ("edge_refused", EdgeRefused, strict),
    ]
};

/// The planted bugs that the law finds, and those it does not.
pub async fn examine_planted() -> (Vec<&'static str>, Vec<&'static str>) {
    let (mut found, mut missed) = (Vec::new(), Vec::new());
    for (name, bug, setup) in BUDGET_BUGS {
        let stores = [Arc::new(MemoryStore::new())];
        let gateway = |i| Planted::new(bug, &stores[0], setup, i);
        let seen = run_with(&stores, "planted", setup, gateway).await;
        if setup.check(&seen).is_err() { found.push(name) } else { missed.push(name) }
    }
    (found, missed)
}

struct Planted {
    bug: BudgetBug,
    limiter: SharedLimiter<Lossy<MemoryStore>>,
    /// Tokens that the node holds, and what it fetches at once.
    held: AtomicU64,
    batch: u64,
    form: SharedForm,
    numbers: AtomicU64,
}

impl Planted {
    fn new(bug: BudgetBug, store: &Arc<MemoryStore>, setup: Setup, gateway: u64) -> Self {
        let limit = match bug {
            BudgetBug::EdgeRefused => Limit::fixed_window(setup.budget(), WINDOW).expect("a window"),
            _ => setup.limit(),
        };
        let lossy = Lossy::new(store.clone(), if setup.loses { 8 } else { 0 }, gateway);
        Self {
            bug,
            limiter: SharedLimiter::new(lossy, "planted", limit).expect("shareable"),
            held: AtomicU64::new(0),
            batch: 4 * setup.chunks.largest() + 1,
            form: SharedForm::of(&limit).expect("shareable"),
            numbers: AtomicU64::new(1),
        }
    }

    async fn looks_first(&self, tokens: u64) -> Told {
        let [left] = self.limiter.peek_each([KEY.as_bytes()]).await.expect("no call is lost");
        if !left.allowed {
            return Told::Denied;
        }
        tokio::task::yield_now().await;
        drop(self.limiter.check(Ask::of(KEY).cost(tokens)).await);
        Told::Allowed
    }

    async fn crosses(&self, tokens: u64) -> Told {
        loop {
            let spend = |held: u64| (held > 0).then(|| held.saturating_sub(tokens));
            if self.held.fetch_update(SeqCst, SeqCst, spend).is_ok() {
                return Told::Allowed;
            }
            let key = KeySpace::new("tk", "planted", "", &self.form).key(KEY.as_bytes(), KEY.as_bytes());
            let want = Want { wants: self.batch, least: 1, share: 1 };
            let ask = LeaseAsk { key: &key, form: &self.form, term: Term::Window, want };
            let lent = self.limiter.store().lease(&[ask]).await.remove(0).expect("no call is lost");
            if lent.loan.granted == 0 {
                return Told::Denied;
            }
            self.held.fetch_add(lent.loan.granted, SeqCst);
        }
    }
}

impl Gateway for Planted {
    const NAMED: bool = false;

    async fn debit(&self, tokens: u64, id: DebitId) -> Told {
        match self.bug {
            BudgetBug::NodeCrosses => self.crosses(tokens).await,
            BudgetBug::LooksFirst => self.looks_first(tokens).await,
            BudgetBug::SendsWithoutName => told(self.limiter.check(Ask::of(KEY).cost(tokens)).await),
            BudgetBug::SendsUnderAnotherName => {
                let id = DebitId { number: self.numbers.fetch_add(1, SeqCst), ..id };
                told(self.limiter.debit(KEY, tokens, id).await)
            }
            BudgetBug::SilenceIsYes => match told(self.limiter.debit(KEY, tokens, id).await) {
                Told::Unknown => Told::Allowed,
                told => told,
            },
            BudgetBug::EdgeRefused => told(self.limiter.debit(KEY, tokens, id).await),
        }
    }
}

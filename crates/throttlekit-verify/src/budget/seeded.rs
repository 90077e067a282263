//! Gateways that meter wrongly, to show that the invariant can fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use throttlekit::store::{DebitId, KeySpace, LeaseRequest, MemoryStore, Store, Term, Want};
use throttlekit::{Call, Limit, SharedLimiter};
use throttlekit_core::rate::shared::ScriptEncoding;

use super::gateway::told;
use super::{Chunks, Gateway, KEY, Lossy, Setup, Told, WINDOW, Way, run_with};
use throttlekit_conformance::bugs::Found;

throttlekit_conformance::bugs! {
    /// A bug of a gateway.
    pub enum BudgetBug {
        NodeCrosses: "A node lets a debit cross what it was lent.",
        SendsUnderAnotherName: "What is sent again has a name of its own.",
        SendsWithoutName: "What is sent again has no name.",
        SilenceIsYes: "No answer is taken for a yes.",
        LooksFirst: "Looks whether anything is left, lets pass, and charges afterwards.",
        EdgeRefused: "A debit beyond what is left is refused, and so is not charged.",
    }
}

impl BudgetBug {
    /// Returns a configuration that exposes it.
    pub fn setup(self) -> Setup {
        let chunks = Chunks::Of(16);
        let strict = Setup { gateways: 4, streams: 8, chunks, way: Way::Strict, loses: false };
        match self {
            Self::NodeCrosses => Setup { way: Way::Leased, ..strict },
            Self::SendsUnderAnotherName | Self::SendsWithoutName | Self::SilenceIsYes => {
                Setup { loses: true, ..strict }
            }
            Self::LooksFirst | Self::EdgeRefused => strict,
        }
    }
}

/// Searches for the seeded bugs, each in a configuration that exposes it.
pub async fn find_seeded() -> Found {
    let mut outcome = Found::default();
    for &bug in BudgetBug::ALL {
        let (stores, setup) = ([Arc::new(MemoryStore::new())], bug.setup());
        let gateway = |i| Seeded::new(bug, &stores[0], setup, i);
        let seen = run_with(&stores, "seeded", setup, gateway).await;
        outcome.note(bug.name(), setup.check(&seen).is_err());
    }
    outcome
}

struct Seeded {
    bug: BudgetBug,
    limiter: SharedLimiter<Lossy<MemoryStore>>,
    /// Tokens that the node holds, and its batch size.
    held: AtomicU64,
    batch: u64,
    form: ScriptEncoding,
    numbers: AtomicU64,
}

impl Seeded {
    fn new(bug: BudgetBug, store: &Arc<MemoryStore>, setup: Setup, gateway: u64) -> Self {
        let limit = match bug {
            BudgetBug::EdgeRefused => Limit::fixed_window(setup.budget(), WINDOW).expect("a window"),
            _ => setup.limit(),
        };
        let lossy = Lossy::new(store.clone(), if setup.loses { 8 } else { 0 }, gateway);
        Self {
            bug,
            limiter: SharedLimiter::new(lossy, "seeded", limit).expect("shareable"),
            held: AtomicU64::new(0),
            batch: 4 * setup.chunks.largest() + 1,
            form: ScriptEncoding::of(&limit).expect("shareable"),
            numbers: AtomicU64::new(1),
        }
    }

    async fn looks_first(&self, tokens: u64) -> Told {
        let left = self.limiter.peek(KEY).await.expect("no call is lost");
        if !left.allowed {
            return Told::Denied;
        }
        tokio::task::yield_now().await;
        drop(self.limiter.check(Call::by(KEY).cost(tokens)).await);
        Told::Allowed
    }

    async fn crosses(&self, tokens: u64) -> Told {
        loop {
            let spend = |held: u64| (held > 0).then(|| held.saturating_sub(tokens));
            if self.held.fetch_update(SeqCst, SeqCst, spend).is_ok() {
                return Told::Allowed;
            }
            let key = KeySpace::new("tk", "seeded", "", &self.form).key(KEY.as_bytes(), KEY.as_bytes());
            let want = Want { wants: self.batch, least: 1, share: 1 };
            let ask = LeaseRequest { key: &key, form: &self.form, term: Term::Window, want };
            let lent = self.limiter.store().lease(&[ask]).await.remove(0).expect("no call is lost");
            if lent.loan.granted == 0 {
                return Told::Denied;
            }
            self.held.fetch_add(lent.loan.granted, SeqCst);
        }
    }
}

impl Gateway for Seeded {
    const NAMED: bool = false;

    async fn debit(&self, tokens: u64, id: DebitId) -> Told {
        match self.bug {
            BudgetBug::NodeCrosses => self.crosses(tokens).await,
            BudgetBug::LooksFirst => self.looks_first(tokens).await,
            BudgetBug::SendsWithoutName => told(self.limiter.check(Call::by(KEY).cost(tokens)).await),
            BudgetBug::SendsUnderAnotherName => {
                let id = DebitId { number: self.numbers.fetch_add(1, SeqCst), ..id };
                told(self.limiter.debit((KEY, tokens), id).await)
            }
            BudgetBug::SilenceIsYes => match told(self.limiter.debit((KEY, tokens), id).await) {
                Told::Unknown => Told::Allowed,
                told => told,
            },
            BudgetBug::EdgeRefused => told(self.limiter.debit((KEY, tokens), id).await),
        }
    }
}

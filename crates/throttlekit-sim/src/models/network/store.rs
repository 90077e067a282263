//! The store's side: the account, a copy that lags behind, and failover between them.

use throttlekit_core::Timestamp;
use throttlekit_core::lease::{Account, Authority, Epoch, Loan, Return, ReturnId, Want};

use super::super::seam::Seam;

/// The durability of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Keeping {
    /// One server that does not fail.
    Alone,
    /// A copy that lags behind and may take over.
    Async,
    /// The same, and the new primary lends nothing in a window it did not open itself.
    Fence,
    /// The same, and replies leave once the copy has their grants.
    Wait,
}

/// The store at an instant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Store {
    account: Account,
    /// The account of the copy, until it takes over.
    copy: Option<Account>,
    /// The window in which nothing is lent.
    fenced: Option<Epoch>,
}

const ANY: Want = Want { wants: u64::MAX, least: 1, share: 1 };

impl Store {
    pub(super) fn new(keeping: Keeping) -> Self {
        let copy = (keeping != Keeping::Alone).then(Account::default);
        Self { account: Account::default(), copy, fenced: None }
    }

    pub(super) fn lend(&mut self, authority: &Authority, want: Want, now: Timestamp) -> Loan {
        if self.fenced.is_some_and(|fenced| authority.look(&self.account.state, want, now).epoch <= fenced) {
            return refusal(authority, &self.account, want, now);
        }
        self.account.lend(authority, want, now)
    }

    pub(super) fn take_back(
        &mut self,
        authority: &Authority,
        id: ReturnId,
        back: Return,
        seam: Seam,
        now: Timestamp,
    ) {
        if seam == Seam::ReturnTwice {
            return authority.take_back(&mut self.account.state, back, now);
        }
        self.account.take_back(authority, id, back, now);
    }

    /// Returns `true` if there is a copy that lags behind.
    pub(super) fn lags(&self) -> bool {
        self.copy.as_ref().is_some_and(|copy| *copy != self.account)
    }

    /// Returns `true` if there is a copy that may take over.
    pub(super) fn can_fail(&self) -> bool {
        self.copy.is_some()
    }

    pub(super) fn replicate(&mut self) {
        self.copy = Some(self.account.clone());
    }

    /// Promotes the copy. Returns the number of units lent without its knowledge.
    pub(super) fn fail_over(&mut self, authority: &Authority, keeping: Keeping, now: Timestamp) -> u64 {
        let copy = self.copy.take().expect("there is a copy");
        let left = |account: &Account| authority.look(&account.state, ANY, now).granted;
        let lost = left(&copy).saturating_sub(left(&self.account));
        self.account = copy;
        if keeping == Keeping::Fence {
            self.fenced = Some(authority.look(&self.account.state, ANY, now).epoch);
        }
        lost
    }
}

/// Returns the response of a key with nothing left.
fn refusal(authority: &Authority, account: &Account, want: Want, now: Timestamp) -> Loan {
    let mut empty = account.state.clone();
    authority.lend(&mut empty, ANY, now);
    authority.look(&empty, want, now)
}

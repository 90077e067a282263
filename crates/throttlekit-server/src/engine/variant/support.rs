//! The requests that a kind of policy supports.

/// Support of a request, or the reason why not, with the alternative.
type Supported = Result<(), &'static str>;

const HOLDS_NOTHING: Supported =
    Err("holds no slot while work runs: use Check, or add `concurrency` to the policy");
const NO_LIMIT: Supported = Err("has no limit to peek at: see its slots in the monitor");

/// The requests that a variant supports.
#[derive(Clone, Copy)]
pub(super) struct Support {
    /// Name of the kind of policy.
    pub(super) kind: &'static str,
    /// True if everything is allowed.
    pub(super) unlimited: bool,
    /// True if everything is denied.
    pub(super) denies: bool,
    /// True if the limits on the store alone decide a check, so that one round trip decides many.
    pub(super) batches: bool,
    pub(super) check: Supported,
    /// Peeks where no limits are on the store.
    pub(super) peek: Supported,
    pub(super) admit: Supported,
    /// True if admitted work holds a lease.
    pub(super) holds: bool,
}

impl Support {
    /// Everything is allowed.
    pub(super) const UNLIMITED: Self = Self {
        kind: "unlimited",
        unlimited: true,
        denies: false,
        batches: false,
        check: Ok(()),
        peek: Ok(()),
        admit: Ok(()),
        holds: false,
    };

    /// Everything is denied.
    pub(super) const DENY: Self = Self { kind: "deny", unlimited: false, denies: true, ..Self::UNLIMITED };

    /// Rates, on the store.
    pub(super) const RATE: Self =
        Self { kind: "rate", unlimited: false, batches: true, admit: HOLDS_NOTHING, ..Self::UNLIMITED };

    /// A rate of which this instance leases units.
    pub(super) const LEASED: Self = Self { kind: "leased", batches: false, ..Self::RATE };

    /// A budget that all keys share.
    pub(super) const FAIR: Self = Self { kind: "fair", batches: false, ..Self::RATE };

    /// A budget, which is debited after the work.
    pub(super) const BUDGET: Self = Self {
        kind: "budget",
        batches: false,
        check: Err("is a token budget: use Debit, after the work"),
        admit: Err("is a token budget: use Debit, or add `concurrency` or `rate` to the policy"),
        ..Self::RATE
    };

    /// Several axes.
    pub(super) const AXES: Self =
        Self { kind: "admission", batches: false, peek: NO_LIMIT, admit: Ok(()), holds: true, ..Self::RATE };

    /// A budget of which calls reserve what was learned, until they are released.
    pub(super) const LEARNED_BUDGET: Self = Self { kind: "budget", check: Self::BUDGET.check, ..Self::AXES };

    /// Several axes with slots, or slots alone.
    pub(super) const SLOTS: Self = Self {
        check: Err("holds a slot while work runs: use Admit, and Release when the work is done"),
        ..Self::AXES
    };

    /// Returns it with calls that may wait, which only Admit allows.
    pub(super) fn waiting(self) -> Self {
        Self { admit: Ok(()), ..self }
    }
}

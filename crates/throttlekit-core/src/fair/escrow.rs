//! Weighted fair escrow: a budget per window, shared by weight, with nothing left over.

use core::time::Duration;

use super::current_window::CurrentWindow;
use super::give_back::Quiet;
use super::{GiveBack, Member, Roster, Weight};
use crate::rate::{Cadence, LimitError, checked_units};
use crate::{Cost, Decision, Retry, Timestamp};

/// `limit` units in each window, shared by weight among the tenants that send requests in it.
///
/// A tenant is active from its first request in a window on, also if that is denied: it then has a guarantee `g =
/// ⌊w·L/W⌋` that no other may take. Joining is no charge; it only adds a member. Each request is decided in order:
///
/// 1. It costs more than is left of the window: denied.
/// 2. It stays within the guarantee: admitted.
/// 3. The tenant has not passed its guarantee and the cost is no more than what no guarantee reserves: admitted.
/// 4. Else denied.
///
/// A denial changes nothing except that the tenant is active. A late tenant gets what the others have left.
///
/// Handles are valid for their window: after [`advance`](Self::advance) has returned that a new one has begun, every
/// tenant joins again.
///
/// ```
/// use core::time::Duration;
/// use throttlekit_core::{Timestamp, fair::{Escrow, Weight}, rate::Cadence};
///
/// let mut escrow = Escrow::new(100, Cadence::every(Duration::from_secs(60)))?;
/// escrow.advance(Timestamp::from_millis(1_800_000_000_000));
///
/// let (pro, free) = (Weight::new(3).unwrap(), Weight::ONE);
/// let (ann, bob) = (escrow.join(pro), escrow.join(free));
/// assert!(escrow.check(bob, free, 25).allowed);
/// assert!(!escrow.check(bob, free, 1).allowed, "75 are reserved for Ann");
/// assert!(escrow.check(ann, pro, 75).allowed);
/// # Ok::<(), throttlekit_core::rate::LimitError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Escrow {
    turn: CurrentWindow,
    roster: Roster,
    quiet: Option<Quiet>,
}

impl Escrow {
    /// `limit` units in each window of the cadence.
    pub fn new(limit: u64, cadence: Cadence) -> Result<Self, LimitError> {
        let roster = Roster::new(checked_units(limit)?);
        Ok(Self { turn: CurrentWindow::new(cadence)?, roster, quiet: None })
    }

    /// Lets tenants that go quiet in a window give back what is reserved for them.
    pub fn give_back(self, by: GiveBack) -> Self {
        Self { quiet: Some(Quiet::new(by)), ..self }
    }

    /// Moves to `now`. True if a new window has begun: then no tenant has joined it yet, and older handles are invalid.
    ///
    /// A clock that steps back into the window before stays in its window. One that steps back further is in the window
    /// that it shows, with as much left as when it was left last; the tenants that send requests share that again.
    pub fn advance(&mut self, now: Timestamp) -> bool {
        let before = self.turn.advance(now, self.roster.used());
        let begins = before.is_some();
        if let Some(before) = before {
            self.roster.begin(before);
            self.quiet.iter_mut().for_each(Quiet::clear);
        }
        if let Some(quiet) = &mut self.quiet {
            quiet.collect(&mut self.roster, now);
        }
        begins
    }

    /// Makes a tenant active.
    pub fn join(&mut self, weight: Weight) -> Member {
        let member = self.roster.join(self.counted(weight));
        self.asks(member, weight);
        member
    }

    /// Makes a tenant active in the slot of the member with the least use, if there is one; that use is now the new
    /// member's. So the sum of all use stays the same, and a replaced tenant that comes back finds at least as much use
    /// as it left: no tenant gets a fresh budget.
    pub fn take_place(&mut self, weight: Weight) -> Option<Member> {
        let member = self.roster.least_used()?;
        self.asks(member, weight);
        Some(member)
    }

    /// Removes a tenant from the window, and its use with it.
    pub fn leave(&mut self, member: Member) {
        self.roster.leave(member);
    }

    /// Decides a request, and charges it if allowed. The weight is the tenant's from this request on; what it has used
    /// stays. A cost of zero changes nothing: it reports the most that would pass.
    pub fn check(&mut self, member: Member, weight: Weight, cost: Cost) -> Decision {
        if cost == 0 {
            return self.standing(member);
        }
        self.asks(member, weight);
        if !self.roster.admits(member, cost) {
            let retry_after = if cost > self.limit() { Retry::Never } else { Retry::after(self.turn.wait()) };
            return Decision { allowed: false, retry_after, ..self.standing(member) };
        }
        self.roster.spend(member, cost);
        let (guarantee, used) = (self.roster.guarantee(member), self.roster.used_by(member));
        self.allowed(guarantee.max(used), guarantee.saturating_sub(used).min(self.roster.left()))
    }

    /// Refunds units that a tenant was charged in this window and did not use. A quiet tenant continues to give back
    /// what covered them.
    pub fn refund(&mut self, member: Member, units: Cost) {
        self.roster.refund(member, units);
        if let Some(quiet) = &mut self.quiet {
            quiet.refunded(&mut self.roster, member);
        }
    }

    /// Charges units that a tenant has used and did not request, also beyond its guarantee and beyond what is left. Use
    /// shows that the tenant is active, as a request does.
    pub fn owe(&mut self, member: Member, weight: Weight, units: Cost) {
        self.asks(member, weight);
        self.roster.spend(member, units);
    }

    /// Returns when the window ends and everything is free again.
    pub fn ends_at(&self) -> Timestamp {
        self.turn.end()
    }

    /// Returns the decision on a cost of zero for a tenant that is not active and would [join](Self::join).
    pub fn peek_newcomer(&mut self, weight: Weight) -> Decision {
        let member = self.roster.join(self.counted(weight));
        let standing = self.standing(member);
        self.roster.leave(member);
        standing
    }

    /// The same for one that would [take a slot](Self::take_place), if there is any.
    pub fn peek_place(&mut self, weight: Weight) -> Option<Decision> {
        let member = self.roster.least_used()?;
        let own = self.roster.weight(member)?;
        self.roster.set_weight(member, self.counted(weight));
        let standing = self.standing(member);
        self.roster.set_weight(member, own);
        Some(standing)
    }

    /// The most a tenant could take in one request, and the use that would result.
    fn standing(&mut self, member: Member) -> Decision {
        let (guarantee, used) = (self.roster.guarantee(member), self.roster.used_by(member));
        let most = self.roster.admissible(member);
        self.allowed(guarantee.max(used + most), most)
    }

    fn allowed(&self, limit: u64, remaining: u64) -> Decision {
        Decision { allowed: true, limit, remaining, reset_at: self.turn.end(), retry_after: Retry::Now }
    }

    /// Changes the limit, of this window and all that follow. Zero is allowed: nothing is granted yet. Below what is
    /// used already, nothing is left.
    pub fn set_limit(&mut self, limit: u64) {
        self.roster.set_limit(limit);
    }

    /// The limit.
    pub fn limit(&self) -> u64 {
        self.roster.limit()
    }

    /// Returns the length of a window; a calendar month counts as 31 days.
    pub fn period(&self) -> Duration {
        self.turn.period()
    }

    /// Returns the units admitted in this window.
    pub fn used(&self) -> u64 {
        self.roster.used()
    }

    /// Returns the members of the window. Where tenants give back, weights are multiples in it.
    pub fn roster(&self) -> &Roster {
        &self.roster
    }

    /// The same, mutable, to label members and to read values that are computed on demand. Join and leave through the
    /// escrow.
    pub fn roster_mut(&mut self) -> &mut Roster {
        &mut self.roster
    }

    #[inline]
    fn asks(&mut self, member: Member, weight: Weight) {
        match &mut self.quiet {
            Some(quiet) => quiet.asks(&mut self.roster, member, weight, self.turn.now()),
            None => self.roster.set_weight(member, weight),
        }
    }

    /// A weight as it counts in the roster.
    fn counted(&self, weight: Weight) -> Weight {
        if self.quiet.is_some() { Quiet::whole(weight) } else { weight }
    }
}

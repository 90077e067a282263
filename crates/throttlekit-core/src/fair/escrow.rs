//! Weighted fair escrow: a budget per window, shared by weight, with nothing left over.

use core::time::Duration;

use super::current_window::CurrentWindow;
use super::give_back::Quiet;
use super::{GiveBack, Member, Roster, Weight};
use crate::rate::{Cadence, LimitError, checked_units};
use crate::{Cost, Decision, Retry, Timestamp};

/// `limit` units in each window, shared by weight among those who ask in it.
///
/// A tenant is active from its first ask in a window on, also if that is denied: it then has a guarantee
/// `g = ⌊w·L/W⌋` that no other may take. Joining is no charge; it only says who shares. What an ask meets, in order:
///
/// 1. It costs more than is left of the window: denied.
/// 2. It stays within the guarantee: admitted.
/// 3. The tenant has not passed its guarantee and the cost is no more than what nobody's guarantee reserves: admitted.
/// 4. Else denied.
///
/// A denial changes nothing but that the tenant is active. A tenant that comes late finds what the others have left.
///
/// Handles live as long as their window: after [`advance`](Self::advance) said that a new one has begun, everyone
/// joins again.
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

    /// Moves to `now`. True if a new window has begun: then nobody has joined it yet, and older handles are void.
    ///
    /// A clock that steps back into the window before stays in its window. One that steps back further is in the window
    /// that it shows, of which then as much is left as was when it was left last; whoever asks shares that anew.
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

    /// Makes a tenant active in the place of whoever has used least, if there is anyone; that one's use is now the
    /// newcomer's. So the sum of all use stays what it is, and whoever lost its place and comes back finds at least
    /// as much use as it left: nobody gets a fresh budget.
    pub fn take_place(&mut self, weight: Weight) -> Option<Member> {
        let member = self.roster.least_used()?;
        self.asks(member, weight);
        Some(member)
    }

    /// Removes a tenant from the window, and its use with it.
    pub fn leave(&mut self, member: Member) {
        self.roster.leave(member);
    }

    /// Answers an ask, and charges it if allowed. The weight is the tenant's from this ask on; what it has used stays.
    /// An ask of nothing changes nothing: it tells the most that would pass.
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

    /// Hands units back that a tenant was charged in this window and did not use. A tenant that is quiet goes on to give
    /// back what covered them.
    pub fn refund(&mut self, member: Member, units: Cost) {
        self.roster.refund(member, units);
        if let Some(quiet) = &mut self.quiet {
            quiet.refunded(&mut self.roster, member);
        }
    }

    /// Takes units that a tenant has used and did not ask for, also beyond its guarantee and beyond what is left. To have
    /// used something shows that the tenant is there, as an ask does.
    pub fn owe(&mut self, member: Member, weight: Weight, units: Cost) {
        self.asks(member, weight);
        self.roster.spend(member, units);
    }

    /// When the window ends and everything is free again.
    pub fn ends_at(&self) -> Timestamp {
        self.turn.end()
    }

    /// What an ask of nothing would say to a tenant that is not active and would [join](Self::join).
    pub fn peek_newcomer(&mut self, weight: Weight) -> Decision {
        let member = self.roster.join(self.counted(weight));
        let standing = self.standing(member);
        self.roster.leave(member);
        standing
    }

    /// The same to one that would [take a place](Self::take_place), if there is anyone.
    pub fn peek_place(&mut self, weight: Weight) -> Option<Decision> {
        let member = self.roster.least_used()?;
        let own = self.roster.weight(member)?;
        self.roster.set_weight(member, self.counted(weight));
        let standing = self.standing(member);
        self.roster.set_weight(member, own);
        Some(standing)
    }

    /// The most a tenant could take in one ask, and up to what use that would bring it.
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

    /// How long a window is; a calendar month counts as 31 days.
    pub fn period(&self) -> Duration {
        self.turn.period()
    }

    /// What has been admitted in this window.
    pub fn used(&self) -> u64 {
        self.roster.used()
    }

    /// Who shares the window. Where tenants give back, weights are multiples in it.
    pub fn roster(&self) -> &Roster {
        &self.roster
    }

    /// The same, to label members and to read what is computed when it is asked for. Whoever joins or leaves does so
    /// by the escrow.
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

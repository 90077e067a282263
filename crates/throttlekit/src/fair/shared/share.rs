//! The share of one tenant at a participant.

use super::SharedFairLimiter;
use super::branch_state::BranchState;
use crate::Call;
use crate::clock::LeaseClock;
use crate::hash::KeyHash;

/// A tenant's share of one participant's budget, in the current window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TenantShare {
    /// Weight of the tenant, as of its last request.
    pub weight: u64,
    /// Units the tenant used at this participant.
    pub used: u64,
    /// Units guaranteed to the tenant: its part by weight of the units available to this participant, as last reported.
    pub guaranteed: u64,
}

impl<C: LeaseClock + 'static> SharedFairLimiter<C> {
    /// Returns the share of a tenant here. `None` if it has no request in this window, or another tenant took over its
    /// entry. Makes no call and changes nothing.
    pub fn share_of<'a>(&self, call: impl Into<Call<'a>>) -> Option<TenantShare> {
        let name = self.place.hash.fingerprint(call.into().key());
        let mut state = self.place.state.lock();
        state.advance(self.place.clock.now());
        state.share_of(name)
    }
}

impl BranchState {
    fn share_of(&mut self, name: u64) -> Option<TenantShare> {
        let member = self.names.find(self.branch.roster(), name)?;
        let roster = self.branch.roster_mut();
        let weight = roster.weight(member)?.get();
        Some(TenantShare { weight, used: roster.used_by(member), guaranteed: roster.guarantee(member) })
    }
}

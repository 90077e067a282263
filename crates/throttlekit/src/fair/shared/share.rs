//! How one tenant of a place stands.

use throttlekit_core::Cost;
use throttlekit_core::fair::Weight;

use super::branch_state::BranchState;
use super::{Budget, SharedFairLimiter};
use crate::{KeyHash, LeaseClock};

/// What a tenant has of one place's budget, in the window that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantShare {
    /// What it weighs, as its last ask said.
    pub weight: Weight,
    /// Units it used at this place.
    pub used: Cost,
    /// Units it is sure of: its part by weight of what this place could have, as far as it was last told.
    pub guaranteed: Cost,
}

impl<B: Budget, C: LeaseClock + 'static> SharedFairLimiter<B, C> {
    /// How a tenant stands here. Nothing if it has not asked in this window, or lost its place to another. Asks nobody
    /// and changes nothing.
    pub fn share_of(&self, tenant: &(impl AsRef<[u8]> + ?Sized)) -> Option<TenantShare> {
        let name = self.place.hash.fingerprint(tenant.as_ref());
        let mut state = self.place.state();
        state.advance(self.place.clock.now());
        state.share_of(name)
    }
}

impl BranchState {
    fn share_of(&mut self, name: u64) -> Option<TenantShare> {
        let member = self.names.find(self.branch.roster(), name)?;
        let roster = self.branch.roster_mut();
        let weight = roster.weight(member)?;
        Some(TenantShare { weight, used: roster.used_by(member), guaranteed: roster.guarantee(member) })
    }
}

//! The bound on running requests while the ceiling moves.

/// The ceiling, or the amount granted under a higher one that may still be used.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bound(u64);

impl Bound {
    /// Applies a ceiling, of which `kept` is reserved or held.
    pub(super) fn set(&mut self, ceiling: u64, kept: u64) {
        self.0 = ceiling.max(self.0.min(kept));
    }

    /// Widens the bound to whatever might have run before, because the reservations are unknown.
    pub(super) fn widen(&mut self, ceiling: u64) {
        self.0 = self.0.max(ceiling);
    }

    pub(super) fn most(self) -> u64 {
        self.0
    }
}

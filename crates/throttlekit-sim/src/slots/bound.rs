//! How many may run: the ceiling in force, while it moves.

/// The ceiling, or what was granted under a higher one and may still be used.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bound(u64);

impl Bound {
    /// A ceiling is in force, of which so much is kept or held.
    pub(super) fn set(&mut self, ceiling: u64, kept: u64) {
        self.0 = ceiling.max(self.0.min(kept));
    }

    /// What was kept is not known: what may run is what might have run before.
    pub(super) fn widen(&mut self, ceiling: u64) {
        self.0 = self.0.max(ceiling);
    }

    pub(super) fn most(self) -> u64 {
        self.0
    }
}

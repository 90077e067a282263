//! Bugs that verification seeds, to see that it finds them. Without the feature `seeded` there are none.

/// A part of the store that does not do its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "seeded"), allow(unreachable_pub, reason = "public with the feature alone"))]
pub enum SeededBug {
    /// A call that is given up is not cancelled on the server.
    NoCancel,
    /// A connection that is given up is closed and no longer counts, whatever still runs on the server.
    AbandonedNotCounted,
    /// A probe reads and does not write.
    ProbeReads,
    /// A new connection's history is not compared.
    LineageIgnored,
    /// What the table says of losses is not believed.
    RowIgnored,
    /// How far the server had flushed its log is not remembered.
    LogIgnored,
    /// Only where the log ends now is compared, not where it ended when the server was started.
    CheckpointIgnored,
    /// The other hosts of the address are not looked at.
    OtherHostsIgnored,
}

/// The bug that a store has, if any.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seeded {
    #[cfg(feature = "seeded")]
    pub(crate) bug: Option<SeededBug>,
}

impl Seeded {
    #[cfg(feature = "seeded")]
    pub(crate) fn has(self, bug: SeededBug) -> bool {
        self.bug == Some(bug)
    }

    #[cfg(not(feature = "seeded"))]
    #[allow(clippy::unused_self, reason = "the same call with and without the feature")]
    pub(crate) fn has(self, _: SeededBug) -> bool {
        false
    }
}

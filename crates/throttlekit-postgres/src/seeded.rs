//! Seeded bugs for verification, which must find them. Without the feature `seeded` there are none.

/// A seeded bug of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "seeded"), allow(unreachable_pub, reason = "public with the feature alone"))]
pub enum SeededBug {
    /// An abandoned call is not canceled on the server.
    NoCancel,
    /// An abandoned connection is closed and no longer counts, whatever still runs on the server.
    AbandonedNotCounted,
    /// A probe reads and does not write.
    ProbeReads,
    /// A new connection's history is not compared.
    LineageIgnored,
    /// Losses recorded in the table are ignored.
    RowIgnored,
    /// The log position that the server had flushed is not recorded.
    LogIgnored,
    /// Only the current end of the log is compared, not its end when the server was started.
    CheckpointIgnored,
    /// The other hosts of the address are not checked.
    OtherHostsIgnored,
}

/// The seeded bug of a store, if any.
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

//! What goes wrong on purpose: the drill must find each.

/// A fault of the parts, as none of ours may have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// Some refunds are acknowledged and not made.
    ReturnSwallowed,
    /// A refund counts as often as it is sent.
    ReturnCountedTwice,
    /// A debit that is sent again is charged again.
    DebitNamesIgnored,
    /// Some permits are never ended.
    PermitForgotten,
    /// What was counted is told as more than it was.
    CountedTwice,
}

impl Planted {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::ReturnSwallowed,
        Self::ReturnCountedTwice,
        Self::DebitNamesIgnored,
        Self::PermitForgotten,
        Self::CountedTwice,
    ];
}

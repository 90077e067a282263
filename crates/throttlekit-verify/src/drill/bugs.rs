//! The seeded bugs: the drill must find each.

throttlekit_conformance::bugs! {
    /// A bug of a component.
    pub enum DrillBug {
        ReturnSwallowed: "Some refunds are acknowledged and not made.",
        ReturnCountedTwice: "A refund counts as often as it is sent.",
        DebitNamesIgnored: "A debit that is sent again is charged again.",
        PermitForgotten: "Some permits are never ended.",
        CountedTwice: "What was counted is told as more than it was.",
    }
}

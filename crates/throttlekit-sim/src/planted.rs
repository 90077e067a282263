//! Bugs that drivers, stores and clocks could have, planted one at a time where production code meets the world.

macro_rules! planted {
    ($($name:ident: $what:literal,)*) => {
        /// A bug to find. Production code has no switches: each changes what goes into it or what comes out.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Planted {
            $(#[doc = $what] $name,)*
        }

        impl Planted {
            /// All of them, each with what it does.
            pub const ALL: &'static [(Self, &'static str)] = &[$((Self::$name, $what),)*];

            /// Its name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }
        }
    };
}

planted! {
    WallClockExpiry: "The end of a window is compared with the node's wall clock.",
    ReplyAnchored: "The life of a lease is counted from the reply and not from the request.",
    NoDriftMargin: "Clocks are taken not to drift.",
    CoarseClockTrusted: "A clock that reads behind is taken to be exact.",
    ClockReadBeforeTaking: "The clock is read before the units are taken.",
    ClockStopsWhileSuspended: "The node's clock stops while the node is suspended.",
    CreditPerWaiter: "Everyone who waits for a grant credits it.",
    LeftoverKept: "What is left of an old window is kept in the new one.",
    DuplicateCredited: "A reply that arrives twice is credited twice.",
    LateReplyUnderNewSend: "A late reply is credited under the send time of the next request.",
    IdsAnewAfterRestart: "Requests are named from the beginning again after a restart.",
    FailureCredited: "A request that failed is taken as granted.",
    PartialCreditedInFull: "A partial grant is credited in full.",
    TwoRequestsUnderWay: "A second request goes out while one is under way.",
    CostIgnored: "An ask of any cost takes one unit.",
    OneUnitShort: "An ask is served with a unit less than it costs.",
    CreditsSurviveRestart: "What a node holds survives its restart.",
    ReturnKept: "Units are given back and kept.",
    ReturnOfTaken: "Units that are being decided on are given back too.",
    ReturnCountedTwice: "A return that arrives twice counts twice.",
    ReturnIntoAnotherWindow: "A return counts in whichever window it arrives.",
    RollingReturned: "Units of a rolling lease are given back.",
    RollingUnderNewerDeadline: "Rolling units live on under the deadline of a newer batch.",
    DenialExtendsUnits: "A denied request prolongs the units that are held.",
    DenialCoversLess: "A denial is held against asks that cost less.",
    DenialOutlives: "A denial is counted from the reply and not from the request.",
    LostWaiter: "Nobody tells those who wait that the request failed.",
    LendsMoreThanIsLeft: "A grant is never cut to what is left.",
    StateForgottenEarly: "The store forgets a key before its window is over.",
    WindowMovesBack: "The store's window moves back with its clock.",
    LimitChangeForgets: "A changed limit starts the window anew.",
    WaitSpendsUnacknowledged: "In wait mode a grant is sent before the replica has it.",
    FenceMissing: "In fence mode a new primary lends at once.",
    FenceForKnownKeysOnly: "In fence mode a new primary lends from keys that it does not know.",
    FenceWithoutIsolation: "In fence mode the old primary is taken to have stopped at once.",
}

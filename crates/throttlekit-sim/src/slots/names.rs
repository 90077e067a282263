//! Faults of clusters that share slots, and the bugs that are seeded in them.

throttlekit_conformance::bugs! {
    /// A kind of fault.
    pub enum Fault {
        ReportLost: "A report never reaches the rebalancer.",
        GrantLost: "A grant was made and never arrives.",
        ReportDoubled: "A report arrives twice.",
        Late: "A message takes many times as long as others.",
        CutOff: "A node is cut off for up to three lives of a grant.",
        NodePaused: "A node stops for a while with work in hand, and its clock does not.",
        NodeKilled: "A process dies with work in hand, and another is started.",
        NodeLeft: "A node leaves while it has work, and another joins.",
        WorkOutlasts: "More runs at a node than its share.",
        Fenced: "A grant dies with work in hand.",
        LimitMoved: "A node infers another ceiling.",
        RollLost: "The coordinator loses its state while shares are held.",
        StoreOutage: "The store is away for longer than leases live.",
        HeartbeatStorm: "All stop at once, and send heartbeats when they resume.",
        Drift: "Time is counted by a clock that drifts as fast as is allowed.",
        ZombieHolder: "A holder is stopped for longer than its lease lives, and goes on.",
        DoubleRelease: "A slot is released twice.",
        ForeignRelease: "Someone releases a slot that is another's.",
        AdmitLost: "A slot was given and the reply never arrives.",
        BeatLost: "A heartbeat or its answer never arrives.",
        ReleaseLost: "A release never arrives.",
        HolderKilled: "A holder dies with slots in hand.",
        RestartWithOpenSlots: "The table is lost while slots are held.",
        SlotsMoved: "There are to be more slots, or fewer.",
    }
}

throttlekit_conformance::bugs! {
    /// A bug to find. Production code has no switches: each bug changes its inputs or its outputs.
    pub enum SlotBug {
        TornReport: "A report says what was in flight before the grant it acknowledges.",
        ObeysAnyGrant: "Whichever grant came last is enforced.",
        GrantAnchoredAtReply: "The life of a grant is counted from its arrival.",
        NodeUnfenced: "A node goes on when its grant has died.",
        GrantDriftIgnored: "Clocks are taken not to drift where shares are counted.",
        LingerUntold: "The rebalancer is not told that work runs on when a grant has died.",
        RollWithoutQuiet: "On a new membership record shares rise at once.",
        ReportCountedOnArrival: "Reports are counted where they arrive.",
        LeavesWithWork: "A node says that it has left, and its work goes on.",
        RollOverwritten: "Two heartbeats read one membership record, and the later write wins.",
        LimitsAdded: "The ceilings that nodes infer are added up.",
        ShareReadEarly: "The share is read, the node stops, and then it admits.",
        HeartbeatRevives: "A heartbeat brings a lease back that is over.",
        SlotAnchoredAtReply: "The life of a slot is counted from the reply.",
        ReleaseByIdAlone: "Whoever names a lease can release it.",
        TableWithoutQuiet: "A table that was lost admits at once.",
        HolderUnfenced: "A holder works on when its deadline has passed.",
        SlotDriftIgnored: "Clocks are taken not to drift where slots are held.",
        ReleasedWhileRunning: "A slot is released and its work goes on.",
        LostIgnored: "A holder that is told that its lease is lost works on.",
        NeverReleased: "A holder keeps beating for work that is done.",
    }
}

impl SlotBug {
    /// Returns `true` if the bug is seeded in nodes under one ceiling rather than in holders of slots.
    pub(super) fn is_of_ceiling(self) -> bool {
        (self as usize) < Self::HeartbeatRevives as usize
    }
}

/// The number of times each fault fired, that is, hit something alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fired([u64; Fault::ALL.len()]);

impl Default for Fired {
    fn default() -> Self {
        Self([0; Fault::ALL.len()])
    }
}

impl Fired {
    pub(super) fn count(&mut self, fault: Fault) {
        self.0[fault as usize] += 1;
    }

    /// Returns the number of times the fault fired.
    pub fn of(&self, fault: Fault) -> u64 {
        self.0[fault as usize]
    }

    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, more)| *sum += more);
    }
}

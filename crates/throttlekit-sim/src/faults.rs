//! Faults of a cluster, and how often each one fired.

throttlekit_conformance::bugs! {
    /// A kind of fault.
    #[derive(PartialOrd, Ord)]
    pub enum Fault {
        RequestLost: "A request never reaches the store.",
        ReplyLost: "The store has lent, and the reply never arrives.",
        ReturnLost: "Units given back never arrive.",
        RequestDuplicated: "A request arrives twice, and is answered twice.",
        ReplyDuplicated: "A reply arrives twice.",
        ReturnDuplicated: "Units given back arrive twice.",
        Overtaken: "A message overtakes an earlier one of the same node.",
        SlowLink: "A message takes many times as long as others.",
        LateReply: "A reply arrives when its request has been given up.",
        DeadlinePassed: "A request is given up.",
        CutBothWays: "A node is cut off, and a message to or from it was lost.",
        CutUpward: "A node's messages are lost, while those to it arrive.",
        CutDownward: "Messages to a node are lost, while its own arrive.",
        ThreadPaused: "A thread sleeps between taking units and reading the clock, and then goes on.",
        NodePaused: "A node stops for a while with something to do, and its clock does not.",
        NodeCrashed: "A node dies with units, a request or callers that wait.",
        NodeRebooted: "A node comes back with another clock.",
        KeyEvicted: "A node drops a key with units.",
        NodeDrift: "Units are credited by a clock that drifts as fast as is allowed.",
        CoarseClock: "Units are credited by a clock that reads behind.",
        StorePaused: "The store stops for a while with something to answer.",
        StoreDrift: "The store lends by a clock that drifts as fast as is allowed.",
        StoreSetBack: "The store's clock is set back.",
        StoreSetForward: "The store's clock is set forward.",
        FailoverInSync: "The replica takes over and has everything.",
        FailoverWithLag: "The replica takes over and has lost grants.",
        SplitBrain: "The replica takes over while the old primary lends on.",
        FailoverAgain: "The replica takes over while the last old primary may lend on.",
        ReplicaStalled: "The replica receives nothing for a while.",
        StoreForgets: "The store restarts with nothing.",
        LimitLowered: "The limit is lowered within a window.",
        LimitRaised: "The limit is raised within a window.",
        BoundaryHerd: "Every node asks at the instant at which a window begins.",
        AbsurdBatch: "A node asks for none, or for more than there could ever be.",
        CallerGone: "A caller has waited too often and goes away.",
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
    /// Counts one fault.
    pub fn count(&mut self, fault: Fault) {
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

//! Coverage of the cases.

/// The number of times each situation occurred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LearnReport {
    /// Cases.
    pub cases: u64,
    /// Calls that were requested.
    pub calls: u64,
    /// Calls that were admitted.
    pub admitted: u64,
    /// Responses.
    pub responses: u64,
    /// Calls that waited because of a response alone.
    pub delayed: u64,
    /// Calls that were admitted although responses still delayed them, after the longest stop.
    pub probes: u64,
    /// Calls that the ceiling denied.
    pub at_ceiling: u64,
    /// Responses that lowered a limit.
    pub lowered: u64,
    /// Responses that raised a limit.
    pub raised: u64,
}

impl LearnReport {
    /// Adds the counts of other cases.
    pub fn add(&mut self, other: &Self) {
        let Self { cases, calls, admitted, responses, delayed, probes, at_ceiling, lowered, raised } = other;
        self.cases += cases;
        self.calls += calls;
        self.admitted += admitted;
        self.responses += responses;
        self.delayed += delayed;
        self.probes += probes;
        self.at_ceiling += at_ceiling;
        self.lowered += lowered;
        self.raised += raised;
    }

    /// Returns the situations that never occurred.
    pub fn missing(&self) -> Vec<&'static str> {
        let all = [
            ("delayed", self.delayed),
            ("probes", self.probes),
            ("at_ceiling", self.at_ceiling),
            ("lowered", self.lowered),
            ("raised", self.raised),
        ];
        all.into_iter().filter(|(_, count)| *count == 0).map(|(name, _)| name).collect()
    }
}

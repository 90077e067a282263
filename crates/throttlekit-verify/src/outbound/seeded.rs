//! The same composition of a policy and what was learned, with a bug in its inputs or outputs.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use throttlekit::admit::SharedPermit;
use throttlekit::clock::ManualClock;
use throttlekit::outbound::{LearnSettings, Learned, Reported, Sent};
use throttlekit::rate::Timestamp;
use throttlekit::{Admit, Policy};

use super::responses::Response;
use super::subject::{Ceilings, Paces, at_once, now, read};

throttlekit_conformance::bugs! {
    /// A seeded bug of what is learned.
    pub enum CeilingBug {
        LimitReplacesCeiling: "A reported limit above the ceiling replaces the ceiling.",
        RemainingGrantsCalls: "Reported units that are left grant calls that the limiter does not see.",
        RefusalReturnsUse: "A refusal returns all that was used of the ceiling.",
        ExpiryReturnsUse: "All that was used of the ceiling is forgotten with what was learned.",
        DelayUnbounded: "A reported delay is kept, however long.",
        LateRefusalsExtend: "Each refusal of a call in flight extends the stop.",
        LimitOfNothingStops: "A reported limit of zero stops all calls.",
        OwnClock: "Instants are compared with the client's clock.",
        DelayIgnored: "The delay of a refusal is ignored.",
        BodyIgnored: "The delay in a body is ignored.",
        RemainingIgnored: "Reported units that are left are ignored.",
        InFlightForgotten: "Calls that are in flight when units are reported are not counted.",
        LimitIgnored: "A reported limit below the ceiling is ignored.",
        RaisesAtOnce: "A success raises the limit to the ceiling.",
        RaisesWithoutSuccess: "An error of the provider counts as a success.",
        DenialRestartsStop: "A call that the limiter denies begins another stop.",
        TimeStandsStill: "A clock that steps back stands still until it has caught up.",
        NeverForgets: "What was learned does not expire.",
    }
}

/// The composition, with a bug or without.
pub(super) struct Seeded {
    bug: Option<CeilingBug>,
    ceilings: Ceilings,
    settings: LearnSettings,
    clock: ManualClock,
    learned: Learned,
    policy: Arc<Policy<ManualClock>>,
    permits: Vec<SharedPermit>,
    /// State of the bugs.
    stopped_until: Timestamp,
    grants: u64,
    latest: Timestamp,
    informed_at: Timestamp,
}

impl Seeded {
    pub(super) fn new(
        bug: Option<CeilingBug>,
        ceilings: &Ceilings,
        settings: LearnSettings,
        clock: &ManualClock,
    ) -> Self {
        let policy = ceilings.policy(clock);
        let mut known = settings;
        if bug == Some(CeilingBug::NeverForgets) {
            known.expires = Duration::MAX;
        }
        Self {
            bug,
            ceilings: *ceilings,
            settings: known,
            clock: clock.clone(),
            learned: Learned::new(&policy.limits(), known),
            policy,
            permits: Vec::new(),
            stopped_until: Timestamp::EPOCH,
            grants: 0,
            latest: Timestamp::EPOCH,
            informed_at: Timestamp::EPOCH,
        }
    }

    fn has(&self, bug: CeilingBug) -> bool {
        self.bug == Some(bug)
    }

    fn now(&self) -> Timestamp {
        let now = now(&self.clock);
        if self.has(CeilingBug::TimeStandsStill) { now.max(self.latest) } else { now }
    }

    fn renew(&mut self) {
        self.policy = self.ceilings.policy(&self.clock);
    }

    /// Reads a response, as far as the bug lets it.
    fn read(&self, response: &Response) -> Reported {
        let mut response = response.clone();
        if self.has(CeilingBug::OwnClock) {
            response.parts.headers.remove("date");
        }
        if self.has(CeilingBug::BodyIgnored) {
            response.body.clear();
        }
        let mut reported = read(&response, now(&self.clock));
        if self.has(CeilingBug::DelayIgnored) {
            reported.retry_after = None;
        }
        let is_error = reported.status == StatusCode::INTERNAL_SERVER_ERROR;
        if self.has(CeilingBug::RaisesWithoutSuccess) && is_error && reported.retry_after.is_none() {
            reported.status = StatusCode::OK;
        }
        if let Some(requests) = &mut reported.requests {
            if self.has(CeilingBug::RemainingIgnored) {
                requests.remaining = None;
            }
            if self.has(CeilingBug::LimitIgnored) {
                requests.limit = None;
            }
        }
        reported
    }

    /// Does what the bug does with a response.
    fn spoil(&mut self, reported: &Reported) {
        let (now, max) = (self.now(), self.settings.max_pause);
        let limit = reported.requests.and_then(|requests| requests.limit);
        let delay = reported.retry_after;
        match self.bug {
            Some(CeilingBug::LimitReplacesCeiling) => {
                if let Some(limit) = limit.filter(|limit| *limit > self.ceilings.burst) {
                    let (requests, burst) = (limit.min(1_000_000), limit.min(1_000_000));
                    self.policy = Ceilings { requests, burst, ..self.ceilings }.policy(&self.clock);
                }
            }
            Some(CeilingBug::RemainingGrantsCalls) => {
                self.grants =
                    reported.requests.and_then(|requests| requests.remaining).unwrap_or(self.grants);
            }
            Some(CeilingBug::RefusalReturnsUse) if reported.is_refusal() => self.renew(),
            Some(CeilingBug::DelayUnbounded) => {
                self.stopped_until = self.stopped_until.max(now + delay.unwrap_or_default());
            }
            Some(CeilingBug::LateRefusalsExtend) => {
                self.stopped_until = self.stopped_until.max(now + delay.unwrap_or_default().min(max));
            }
            Some(CeilingBug::LimitOfNothingStops) => {
                if let Some(limit) = limit {
                    self.stopped_until = if limit == 0 { Timestamp::MAX } else { Timestamp::EPOCH };
                }
            }
            Some(CeilingBug::RaisesAtOnce) if reported.status.is_success() => {
                self.learned = Learned::new(&self.policy.limits(), self.settings);
            }
            _ => {}
        }
    }

    fn expire(&mut self) {
        let is_expired = self.now().since(self.informed_at) >= self.settings.expires;
        if self.has(CeilingBug::ExpiryReturnsUse) && is_expired {
            self.renew();
            self.informed_at = self.now();
        }
    }
}

impl Paces for Seeded {
    fn admit(&mut self, tokens: u64) -> Result<Sent, Option<Duration>> {
        self.expire();
        let now = self.now();
        self.latest = now;
        if now < self.stopped_until {
            return Err(Some(self.stopped_until.since(now)));
        }
        if self.grants > 0 {
            self.grants -= 1;
            return Ok(self.learned.position());
        }
        let sent = self.learned.start(tokens, now).map_err(Some)?;
        let admission = at_once(&self.policy, tokens);
        let wait = admission.retry_after.wait();
        let Some(permit) = admission.permit else {
            if !self.has(CeilingBug::DenialRestartsStop) {
                self.learned.cancel(sent, tokens);
            }
            return Err(wait);
        };
        self.permits.push(permit);
        Ok(self.learned.position())
    }

    fn respond(&mut self, sent: Sent, response: &Response) {
        let (reported, now) = (self.read(response), self.now());
        self.latest = now;
        let sent = if self.has(CeilingBug::InFlightForgotten) { self.learned.position() } else { sent };
        self.learned.report(&reported, sent, now);
        if reported.is_informative() {
            self.informed_at = now;
        }
        self.spoil(&reported);
    }

    fn limits(&self) -> [Option<u64>; 2] {
        let now = self.now();
        [self.learned.requests_per_minute(now), self.learned.tokens_per_minute(now)]
    }
}

//! The same composition of a policy and learned limits, with a bug in its inputs or outputs.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use throttlekit::admit::{Admitting, LimitInfo, Unlimited};
use throttlekit::clock::ManualClock;
use throttlekit::outbound::Reported;
use throttlekit::rate::Timestamp;
use throttlekit::{Admit, Call, Policy};

use super::responses::Response;
use super::subject::{Ceilings, Paces, Sent, Settings, Shipped, now};

throttlekit_conformance::bugs! {
    /// A seeded bug of learned limits.
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
    settings: Settings,
    ceiling: Arc<Ceiling>,
    shipped: Shipped,
    /// State of the bugs.
    stopped_until: Timestamp,
    grants: u64,
    informed_at: Timestamp,
}

impl Seeded {
    pub(super) fn new(
        bug: Option<CeilingBug>,
        ceilings: &Ceilings,
        mut settings: Settings,
        clock: &ManualClock,
    ) -> Self {
        if bug == Some(CeilingBug::NeverForgets) {
            settings.expires = Duration::MAX;
        }
        let state = CeilingState { policy: ceilings.policy(clock), latest: Timestamp::EPOCH, denied: None };
        let ceiling = Arc::new(Ceiling { bug, clock: clock.clone(), state: Mutex::new(state) });
        Self {
            bug,
            ceilings: *ceilings,
            settings,
            shipped: Shipped::new(ceiling.clone(), settings),
            ceiling,
            stopped_until: Timestamp::EPOCH,
            grants: 0,
            informed_at: Timestamp::EPOCH,
        }
    }

    fn has(&self, bug: CeilingBug) -> bool {
        self.bug == Some(bug)
    }

    fn renew(&mut self, ceilings: Ceilings) {
        self.ceiling.with(|state| state.policy = ceilings.policy(&self.ceiling.clock));
    }

    /// Returns a response, as far as the bug lets it be read.
    fn seen(&self, response: &Response) -> (Response, Reported) {
        let mut response = response.clone();
        let headers = &mut response.parts.headers;
        match self.bug {
            Some(CeilingBug::OwnClock) => remove(headers, |name| name == "date"),
            Some(CeilingBug::BodyIgnored) => response.body.clear(),
            Some(CeilingBug::DelayIgnored) => {
                remove(headers, |name| name.contains("retry-after"));
                response.body.clear();
            }
            Some(CeilingBug::RemainingIgnored) => {
                remove(headers, |name| name.contains("remaining") || name == "ratelimit");
            }
            Some(CeilingBug::LimitIgnored) => {
                remove(headers, |name| name.contains("limit-") || name.ends_with("-limit"));
            }
            _ => {}
        }
        let reported = self.read(&response);
        let is_error = reported.status == StatusCode::INTERNAL_SERVER_ERROR;
        if self.has(CeilingBug::RaisesWithoutSuccess) && is_error && reported.retry_after.is_none() {
            response.parts.status = StatusCode::OK;
        }
        (response, reported)
    }

    fn read(&self, response: &Response) -> Reported {
        let parts = &response.parts;
        Reported::of(parts.status, &parts.headers, &response.body, now(&self.ceiling.clock))
    }

    /// Applies the bug to a response.
    fn spoil(&mut self, reported: &Reported) {
        let (now, max) = (self.ceiling.now(), self.settings.max_pause);
        let limit = reported.requests.and_then(|requests| requests.limit);
        let delay = reported.retry_after;
        match self.bug {
            Some(CeilingBug::LimitReplacesCeiling) => {
                if let Some(limit) = limit.filter(|limit| *limit > self.ceilings.burst) {
                    let (requests, burst) = (limit.min(1_000_000), limit.min(1_000_000));
                    self.renew(Ceilings { requests, burst, ..self.ceilings });
                }
            }
            Some(CeilingBug::RemainingGrantsCalls) => {
                self.grants =
                    reported.requests.and_then(|requests| requests.remaining).unwrap_or(self.grants);
            }
            Some(CeilingBug::RefusalReturnsUse) if reported.is_refusal() => self.renew(self.ceilings),
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
                self.shipped.forget(self.ceiling.clone(), self.settings);
            }
            _ => {}
        }
    }

    fn expire(&mut self) {
        let now = self.ceiling.now();
        if self.has(CeilingBug::ExpiryReturnsUse) && now.since(self.informed_at) >= self.settings.expires {
            self.renew(self.ceilings);
            self.informed_at = now;
        }
    }
}

impl Paces for Seeded {
    fn admit(&mut self, tokens: u64) -> Result<Sent, Option<Duration>> {
        self.expire();
        let now = self.ceiling.now();
        if now < self.stopped_until {
            return Err(Some(self.stopped_until.since(now)));
        }
        if self.grants > 0 {
            self.grants -= 1;
            return Ok(self.shipped.last());
        }
        let sent = self.shipped.admit(tokens)?;
        match self.ceiling.with(|state| state.denied.take()) {
            Some(wait) => Err(wait),
            None => Ok(sent),
        }
    }

    fn respond(&mut self, sent: Sent, response: &Response) {
        let (response, reported) = self.seen(response);
        let sent = if self.has(CeilingBug::InFlightForgotten) { self.shipped.last() } else { sent };
        self.shipped.respond(sent, &response);
        if reported.is_informative() {
            self.informed_at = self.ceiling.now();
        }
        self.spoil(&reported);
    }

    fn limits(&self) -> [Option<u64>; 2] {
        self.shipped.learned().unwrap_or_else(|| self.ceilings.per_minute().map(Some))
    }
}

/// The policy, with a bug in what an upstream sees of it.
struct Ceiling {
    bug: Option<CeilingBug>,
    clock: ManualClock,
    state: Mutex<CeilingState>,
}

struct CeilingState {
    policy: Arc<Policy<ManualClock>>,
    /// Last reading of the clock.
    latest: Timestamp,
    /// The wait of a denial that the upstream saw as an admission.
    denied: Option<Option<Duration>>,
}

impl Ceiling {
    fn with<T>(&self, change: impl FnOnce(&mut CeilingState) -> T) -> T {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Admit for Ceiling {
    fn admit(&self, call: Call<'_>) -> Admitting {
        let admitting = self.with(|state| state.policy.admit(call));
        if self.bug != Some(CeilingBug::DenialRestartsStop) {
            return admitting;
        }
        match admitting.now_or_later() {
            Ok(Ok(denied)) if !denied.allowed => {
                self.with(|state| state.denied = Some(denied.retry_after.wait()));
                Unlimited.admit(call)
            }
            Ok(result) => Admitting::ready(result),
            Err(later) => later,
        }
    }

    fn limits(&self) -> Vec<LimitInfo> {
        self.with(|state| state.policy.limits())
    }

    fn now(&self) -> Timestamp {
        let now = now(&self.clock);
        let latest = self.with(|state| {
            state.latest = state.latest.max(now);
            state.latest
        });
        if self.bug == Some(CeilingBug::TimeStandsStill) { latest } else { now }
    }
}

fn remove(headers: &mut HeaderMap, is_removed: impl Fn(&str) -> bool) {
    let names: Vec<_> = headers.keys().filter(|name| is_removed(name.as_str())).cloned().collect();
    names.into_iter().for_each(|name| _ = headers.remove(name));
}

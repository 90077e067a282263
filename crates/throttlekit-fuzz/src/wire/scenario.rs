//! One engine in memory, its APIs, and a clock that inputs move.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use throttlekit::clock::ManualClock;
use throttlekit::rate::Timestamp;
use throttlekit_proto::envoy::RateLimitRequest;
use throttlekit_proto::v1::fleet_server::Fleet;
use throttlekit_proto::v1::rate_limiter_server::RateLimiter;
use throttlekit_proto::v1::{
    AdmitRequest, CheckManyRequest, CheckRequest, DebitRequest, ForecastRequest, HeartbeatRequest,
    PeekRequest, ReleaseRequest, ReserveRequest,
};
use throttlekit_server::internals::access::Caller;
use throttlekit_server::internals::api::envoy::EnvoyRls;
use throttlekit_server::internals::api::grpc::{LeaseApi, RateLimiterApi};
use throttlekit_server::internals::engine::{Backend, Engine, EngineOptions};
use throttlekit_server::policy::{self, PolicyFile};
use tokio::runtime::{Builder, Runtime};
use tonic::{Code, Request, Status};

use super::invariants;

/// The policies that the seeds of messages name: one of each kind, with names so short that a mutation finds
/// them.
pub const POLICIES: &str = include_str!("policies.yaml");
/// The number of inputs of an engine: a failure can be reproduced from few of them.
const INPUTS_MAX: u32 = 4_096;
/// The number of identifiers of leases and loans that inputs can use.
const HELD_MAX: usize = 16;
const BEGIN: Timestamp = Timestamp::from_nanos(1_700_000_000_000_000_000);

thread_local! {
    static SCENARIO: RefCell<Option<Scenario>> = const { RefCell::new(None) };
}

/// Drops the engine of this thread. The next input starts with a new one.
pub fn forget() {
    SCENARIO.with_borrow_mut(|scenario| drop(scenario.take()));
}

/// Runs `act` in this thread's scenario. Returns `true` if there was a response.
pub(super) fn with(act: impl FnOnce(&mut Scenario)) -> bool {
    SCENARIO.with_borrow_mut(|kept| {
        // Taken out: a scenario that panicked is not used again.
        let mut scenario =
            kept.take().filter(|scenario| scenario.inputs < INPUTS_MAX).unwrap_or_else(Scenario::new);
        scenario.inputs += 1;
        let before = scenario.answers.get();
        act(&mut scenario);
        let after = scenario.answers.get();
        *kept = Some(scenario);
        after > before
    })
}

pub(super) struct Scenario {
    runtime: Runtime,
    clock: ManualClock,
    asks: RateLimiterApi,
    fleet: LeaseApi,
    envoy: EnvoyRls,
    leases: VecDeque<String>,
    loans: VecDeque<String>,
    inputs: u32,
    answers: Cell<u64>,
}

impl Scenario {
    fn new() -> Self {
        let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
        let clock = ManualClock::at(BEGIN);
        static FILE: LazyLock<PolicyFile> =
            LazyLock::new(|| policy::load(POLICIES).expect("the policies load").0);
        let options = EngineOptions::over(Backend::memory_with_clock(Arc::new(clock.clone())));
        let engine = runtime.block_on(async { Engine::start(options, FILE.clone()) }).expect("an engine");
        Self {
            asks: RateLimiterApi::new(engine.clone()),
            fleet: LeaseApi::new(engine.clone()),
            envoy: EnvoyRls::new(engine),
            leases: VecDeque::new(),
            loans: VecDeque::new(),
            inputs: 0,
            answers: Cell::new(0),
            runtime,
            clock,
        }
    }

    /// Advances the time: a little for most inputs, a window's length for some.
    pub(super) fn pass(&mut self, length: usize) {
        let millis = if length.is_multiple_of(17) { 60_000 } else { length as u64 };
        self.clock.advance(Duration::from_millis(millis));
    }

    fn run<T>(&self, answer: impl Future<Output = Result<tonic::Response<T>, Status>>) -> Option<T> {
        match self.runtime.block_on(answer) {
            Ok(answer) => {
                self.answers.set(self.answers.get() + 1);
                Some(answer.into_inner())
            }
            Err(status) => {
                // No client input may cause a server error.
                let ours = [Code::Internal, Code::Unknown, Code::DataLoss, Code::Unavailable];
                assert!(!ours.contains(&status.code()), "{status:?}");
                assert!(!status.message().is_empty(), "{status:?}");
                None
            }
        }
    }

    pub(super) fn check(&mut self, it: CheckRequest) {
        self.run(self.asks.check(Request::new(it)))
            .into_iter()
            .for_each(|told| invariants::decision(told.decision));
    }

    pub(super) fn check_many(&mut self, it: CheckManyRequest) {
        let keys = it.keys.len();
        if let Some(told) = self.run(self.asks.check_many(Request::new(it))) {
            assert_eq!(told.decisions.len(), keys);
            told.decisions.into_iter().for_each(|decision| invariants::decision(Some(decision)));
        }
    }

    pub(super) fn peek(&mut self, it: PeekRequest) {
        self.run(self.asks.peek(Request::new(it)))
            .into_iter()
            .for_each(|told| invariants::decision(told.decision));
    }

    pub(super) fn forecast(&mut self, it: ForecastRequest) {
        self.run(self.asks.forecast(Request::new(it)))
            .into_iter()
            .for_each(|told| invariants::forecast(told.forecast));
    }

    pub(super) fn debit(&mut self, mut it: DebitRequest) {
        meant(&mut it.lease_id, &self.leases);
        self.run(self.asks.debit(Request::new(it)))
            .into_iter()
            .for_each(|told| invariants::decision(told.decision));
    }

    pub(super) fn admit(&mut self, it: AdmitRequest) {
        let Some(told) = self.run(self.asks.admit(Request::new(it))) else { return };
        assert!(told.lease_expires_at >= 0 && told.lease_for_ms >= 0, "{told:?}");
        let allowed = told.decision.as_ref().is_some_and(|decision| decision.allowed);
        assert!(allowed || told.lease_id.is_empty(), "denied, and holds something: {told:?}");
        remember(&mut self.leases, told.lease_id);
        invariants::admission(told.decision, told.policy_denied);
    }

    pub(super) fn release(&mut self, mut it: ReleaseRequest) {
        meant(&mut it.lease_id, &self.leases);
        self.run(self.asks.release(Request::new(it)));
    }

    pub(super) fn heartbeat(&mut self, mut it: HeartbeatRequest) {
        it.lease_ids.iter_mut().for_each(|lease| meant(lease, &self.leases));
        let all = it.lease_ids.clone();
        if let Some(told) = self.run(self.asks.heartbeat(Request::new(it))) {
            assert!(told.next_deadline >= 0);
            let told_of = |id: &String| told.live_ids.contains(id) || told.reclaimed_ids.contains(id);
            assert!(all.iter().all(told_of), "{all:?}: {told:?}");
        }
    }

    pub(super) fn reserve(&mut self, mut it: ReserveRequest) {
        let wants = it.wants;
        if let Some(back) = &mut it.returned {
            meant(&mut back.return_id, &self.loans);
        }
        if let Some(told) = self.run(self.fleet.reserve(Request::new(it))) {
            let loan = told.lease.as_ref().map(|lease| lease.return_id.clone());
            remember(&mut self.loans, loan.unwrap_or_default());
            invariants::lease(told.lease, wants);
        }
    }

    pub(super) fn should_rate_limit(&mut self, it: &RateLimitRequest) {
        let caller = Caller::anyone();
        let answer = async { self.envoy.decide(&caller, it).await.map(tonic::Response::new) };
        self.run(answer).into_iter().for_each(|told| invariants::envoy(it, &told));
    }
}

/// Replaces one letter by a granted identifier: inputs cannot guess them.
fn meant(name: &mut String, given: &VecDeque<String>) {
    if let [letter] = name.as_bytes()
        && let Some(one) = given.get(usize::from(*letter) % HELD_MAX)
    {
        one.clone_into(name);
    }
}

fn remember(given: &mut VecDeque<String>, name: String) {
    if !name.is_empty() {
        given.push_front(name);
        given.truncate(HELD_MAX);
    }
}

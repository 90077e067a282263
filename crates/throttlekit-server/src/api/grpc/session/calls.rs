//! Deciding the calls of a session: part by part, each in the turn of its caller.

use std::pin::Pin;

use futures_util::future::join_all;
use throttlekit_proto::v1::CheckRequest;
use throttlekit_proto::v1::session_call::Call;
use tokio::time::Instant;
use tonic::Status;

use super::SessionContext;
use crate::access::Caller;
use crate::api::fair_use::CROWDED;
use crate::api::grpc::calls::{check, check_call, check_now, debit, peek};
use crate::api::grpc::status::status;
use crate::engine::{Answered, PART_MAX};
use crate::listen::within;
use crate::share::{Turn, Who};
use crate::wire_format::slices;

/// A call without a result.
pub(super) struct PendingCall {
    pub(super) id: u64,
    pub(super) deadline: Instant,
    pub(super) call: Option<Call>,
}

/// The result of a call: a decision, or why there is none.
pub(super) type Outcome = Result<Answered, Status>;

/// Checks of one policy, and their places among the calls.
struct Group<'a> {
    policy: &'a str,
    indices: Vec<usize>,
    requests: Vec<&'a CheckRequest>,
}

/// The places of calls that are decided together, and their results; none if they are late.
type GroupDecided<'a> = Pin<Box<dyn Future<Output = (Vec<usize>, Vec<Outcome>)> + Send + 'a>>;

/// Returns the checks by policy, as far as their time is not over, and the places of all other calls.
fn grouped(part: &[PendingCall]) -> (Vec<Group<'_>>, Vec<usize>) {
    let now = Instant::now();
    let (mut groups, mut others) = (Vec::<Group<'_>>::new(), Vec::new());
    for (index, PendingCall { deadline, call, .. }) in part.iter().enumerate() {
        let Some(Call::Check(request)) = call.as_ref().filter(|_| *deadline > now) else {
            others.push(index);
            continue;
        };
        match groups.iter_mut().find(|group| group.policy == request.policy) {
            Some(group) => {
                group.indices.push(index);
                group.requests.push(request);
            }
            None => {
                let (indices, requests) = (vec![index], vec![request]);
                groups.push(Group { policy: &request.policy, indices, requests });
            }
        }
    }
    (groups, others)
}

/// The calls of one caller, of what it sent together.
pub(super) struct Batch<'a> {
    pub(super) context: &'a SessionContext,
    pub(super) caller: &'a Caller,
    pub(super) who: &'a Who,
    /// Calls since the session last yielded to other connections.
    pub(super) since_yield: &'a mut usize,
}

impl Batch<'_> {
    /// Decides calls; results have their order. A part that is shed ends the batch.
    pub(super) async fn decide(mut self, calls: &[PendingCall]) -> Vec<Outcome> {
        let mut outcomes = Vec::with_capacity(calls.len());
        for part in calls.chunks(PART_MAX) {
            self.yield_before(part.len()).await;
            if !self.decide_part(part, &mut outcomes).await {
                break;
            }
        }
        let shed = calls.len() - outcomes.len();
        (0..shed).for_each(|_| self.context.counters.count_shed());
        outcomes.resize_with(calls.len(), || Err(Status::unavailable(CROWDED)));
        outcomes
    }

    /// Lets other connections run, if this one would decide more at once than a part.
    async fn yield_before(&mut self, calls: usize) {
        if *self.since_yield > 0 && *self.since_yield + calls > PART_MAX {
            *self.since_yield = 0;
            tokio::task::yield_now().await;
        }
        *self.since_yield += calls;
    }

    /// Decides calls in one turn. Returns whether it came.
    async fn decide_part(&self, part: &[PendingCall], outcomes: &mut Vec<Outcome>) -> bool {
        let last = part.iter().map(|call| call.deadline).max().unwrap_or_else(Instant::now);
        let turn = self.context.shares.turn_for(self.who.clone(), part.len() as u64);
        let turn: Turn = match within(|| last, turn).await {
            Ok(Some(turn)) => turn,
            Ok(None) => return false,
            Err(_) => {
                outcomes.extend(part.iter().map(|_| self.late()));
                return true;
            }
        };
        let before = outcomes.len();
        let now = Instant::now();
        outcomes.extend(part.iter().map_while(|call| self.decide_now(call, now)));
        match &part[outcomes.len() - before..] {
            [] => {}
            [one] => outcomes.push(self.decide_one(one).await),
            rest => outcomes.extend(self.decide_groups(rest, last).await),
        }
        let denied = outcomes[before..].iter().flatten().filter(|answer| !answer.decision.allowed);
        turn.denied(denied.count() as u64);
        true
    }

    /// Decides a check, if that needs no store.
    fn decide_now(&self, PendingCall { deadline, call, .. }: &PendingCall, now: Instant) -> Option<Outcome> {
        match call {
            Some(Call::Check(request)) if *deadline > now => {
                check_now(&self.context.engine, self.caller, request)
            }
            _ => None,
        }
    }

    async fn decide_one(&self, PendingCall { deadline, call, .. }: &PendingCall) -> Outcome {
        let (engine, caller) = (&self.context.engine, self.caller);
        if *deadline <= Instant::now() {
            return self.late();
        }
        let decided = async {
            match call {
                Some(Call::Check(request)) => check(engine, caller, request).await,
                Some(Call::Debit(request)) => debit(engine, caller, request).await,
                Some(Call::Peek(request)) => peek(engine, caller, request).await,
                None => Err(Status::invalid_argument("a call is neither check, debit nor peek")),
            }
        };
        within(|| *deadline, decided).await.unwrap_or_else(|_| self.late())
    }

    /// Decides checks of one policy together, and everything at the same time. Results have the order of the calls.
    async fn decide_groups(&self, part: &[PendingCall], last: Instant) -> Vec<Outcome> {
        let (groups, others) = grouped(part);
        if let ([Group { policy, requests, .. }], []) = (&groups[..], &others[..]) {
            let decided = within(|| last, self.checks(policy, requests)).await;
            return decided.unwrap_or_else(|_| part.iter().map(|_| self.late()).collect());
        }
        let mut work: Vec<GroupDecided<'_>> = Vec::with_capacity(groups.len() + others.len());
        for Group { policy, indices, requests } in groups {
            work.push(Box::pin(async move {
                (indices, within(|| last, self.checks(policy, &requests)).await.unwrap_or_default())
            }));
        }
        for index in others {
            work.push(Box::pin(async move { (vec![index], vec![self.decide_one(&part[index]).await]) }));
        }
        let mut outcomes: Vec<Option<Outcome>> = part.iter().map(|_| None).collect();
        for (indices, decided) in join_all(work).await {
            indices.iter().zip(decided).for_each(|(index, outcome)| outcomes[*index] = Some(outcome));
        }
        outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(|| self.late())).collect()
    }

    /// Decides checks of one policy, each as if it were alone.
    async fn checks(&self, policy: &str, requests: &[&CheckRequest]) -> Vec<Outcome> {
        let others: Vec<_> = requests.iter().map(|request| slices(&request.keys)).collect();
        let each = requests.iter().zip(&others);
        let calls: Vec<_> = each.map(|(request, others)| check_call(self.caller, request, others)).collect();
        let valid: Vec<_> = calls.iter().flatten().copied().collect();
        let mut answers = self.context.engine.check_each(policy, &valid).await.into_iter();
        let answer = |call: Result<_, Status>| {
            let answer = call.map(|_| answers.next())?;
            let missing = || Status::internal("a batch with too few results");
            answer.ok_or_else(missing)?.and_then(Answered::decided).map_err(status)
        };
        calls.into_iter().map(answer).collect()
    }

    fn late(&self) -> Outcome {
        self.context.counters.count_late();
        Err(Status::deadline_exceeded("request timed out"))
    }
}

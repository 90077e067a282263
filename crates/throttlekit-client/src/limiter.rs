//! A policy on a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use throttlekit::clock::{Clock, WallClock};
use throttlekit::rate::{Forecast, LimitError};
use throttlekit::{Call, Decision, Guarantee, Limit, Limiter, OnOutage, Retry};
use throttlekit_proto::v1::rate_limiter_client::RateLimiterClient;
use throttlekit_proto::v1::{
    AdmitRequest, CheckManyRequest, CheckRequest, DebitRequest, ForecastRequest, Keys, PeekRequest,
};

use crate::{
    Client, ClientError, DebitId, RemoteAdmission, RemoteAnswer, RemotePermit, RemoteStream, Work, wire,
};

/// Maximum number of keys in one request of [`check_many`](RemotePolicy::check_many). More are split into several.
pub const KEYS_AT_ONCE_MAX: usize = 1_000;
/// Maximum number of attempts of a debit with an id.
const DEBIT_TRIES: usize = 3;
/// Retry delay after a denial by an outage: circuit breakers probe several times a second.
const CLOSED_RETRY: Duration = Duration::from_secs(1);

/// A policy on a server: one call per request. Cheap to clone.
#[derive(Clone)]
pub struct RemotePolicy {
    client: Client,
    policy: Arc<str>,
    /// Further keys of every call.
    others: Arc<[String]>,
    stand_in: Arc<Fallback>,
    limit: Option<Limit>,
    /// The maximum number of units that the server last reported.
    units: Arc<AtomicU64>,
    /// `true` if work holds something while it runs, as far as known.
    holds: Arc<AtomicBool>,
}

/// The fallback while the server is unreachable.
pub(crate) enum Fallback {
    Closed,
    Open,
    /// Keeps its state across outages. `None` if the share is less than a unit.
    Local(Option<Box<Limiter>>),
}

impl Fallback {
    pub(crate) fn new(choice: OnOutage, limit: Option<&Limit>) -> Result<Self, throttlekit::BuildError> {
        match choice {
            OnOutage::Open => Ok(Self::Open),
            OnOutage::Local { nodes } => {
                let limit = limit.ok_or(LimitError::Policy("a local share is one of a limit: say which"))?;
                let share = limit.share(nodes).map(Limiter::new).transpose()?;
                Ok(Self::Local(share.map(Box::new)))
            }
            _ => Ok(Self::Closed),
        }
    }

    fn answer(&self, ask: Call<'_>, limit: u64) -> (Decision, Guarantee) {
        let uncounted = |allowed, retry_after| Decision {
            allowed,
            limit,
            remaining: 0,
            reset_at: WallClock.now(),
            retry_after,
        };
        match self {
            Self::Local(Some(share)) => (share.check(ask), Guarantee::Local),
            Self::Local(None) | Self::Closed => {
                (uncounted(false, Retry::After(CLOSED_RETRY)), Guarantee::Closed)
            }
            Self::Open => (uncounted(true, Retry::Now), Guarantee::Open),
        }
    }
}

impl RemotePolicy {
    pub(crate) fn closed(client: Client, policy: &str) -> Self {
        Self::new(client, policy, None, Fallback::Closed)
    }

    pub(crate) fn new(client: Client, policy: &str, limit: Option<Limit>, stand_in: Fallback) -> Self {
        let units = Arc::new(AtomicU64::new(limit.map_or(0, |limit| limit.units())));
        let (policy, others) = (policy.into(), Arc::default());
        let holds = Arc::new(AtomicBool::new(true));
        Self { client, policy, others, stand_in: stand_in.into(), limit, units, holds }
    }

    /// Returns the same policy with these further keys in every call, for policies that limit by several. Work with
    /// further keys of its own uses those instead.
    #[must_use]
    pub fn and(&self, others: &[&str]) -> Self {
        Self { others: others.iter().map(|&key| key.to_owned()).collect(), ..self.clone() }
    }

    /// Decides one request, and charges it if allowed.
    pub async fn check<'a>(&self, ask: impl Into<Call<'a>>) -> Result<RemoteAnswer, ClientError> {
        let ask = ask.into();
        let request = CheckRequest {
            policy: self.policy.to_string(),
            key: wire::key(ask.key())?.into(),
            cost: wire::cost(ask.units())?,
            keys: self.others.to_vec(),
        };
        let call = |channel, request| async move { RateLimiterClient::new(channel).check(request).await };
        let told = self.client.ask(request, call).await;
        self.answer(told.and_then(|told| wire::answer(told.decision)), ask)
    }

    /// The same with [further keys](Self::and): all are charged, or none.
    pub async fn check_by<'a>(
        &self,
        ask: impl Into<Call<'a>>,
        others: &[&str],
    ) -> Result<RemoteAnswer, ClientError> {
        self.and(others).check(ask).await
    }

    /// Decides a request of this cost for each of many keys, in their order. Requests without a response get the
    /// fallback of [`OnOutage`].
    pub async fn check_many(&self, keys: &[&str], cost: u64) -> Result<Vec<RemoteAnswer>, ClientError> {
        let mut answers = Vec::with_capacity(keys.len());
        for keys in keys.chunks(KEYS_AT_ONCE_MAX) {
            let (policy, cost_told) = (self.policy.to_string(), wire::cost(cost)?);
            let others = keys.iter().filter(|_| !self.others.is_empty());
            let others = others.map(|_| Keys { keys: self.others.to_vec() }).collect();
            let request = CheckManyRequest { policy, keys: owned(keys), cost: cost_told, others };
            let call =
                |channel, request| async move { RateLimiterClient::new(channel).check_many(request).await };
            let asks = keys.iter().map(|key| Call::by(*key).cost(cost));
            match self.client.ask(request, call).await {
                Ok(told) if told.decisions.len() == keys.len() => {
                    let each = asks.zip(told.decisions);
                    let told = each.map(|(ask, decision)| self.answer(wire::answer(Some(decision)), ask));
                    answers.extend(told.collect::<Result<Vec<_>, _>>()?);
                }
                Ok(_) => return Err(ClientError::Failed("the server left keys without an answer".into())),
                Err(error) => {
                    let told = asks.map(|ask| self.answer(Err(error.clone()), ask));
                    answers.extend(told.collect::<Result<Vec<_>, _>>()?);
                }
            }
        }
        Ok(answers)
    }

    /// Returns the state of a key without charging. Never uses the fallback.
    pub async fn peek(&self, key: &str) -> Result<RemoteAnswer, ClientError> {
        let (policy, keys) = (self.policy.to_string(), self.others.to_vec());
        let request = PeekRequest { policy, key: key.into(), keys };
        let call = |channel, request| async move { RateLimiterClient::new(channel).peek(request).await };
        wire::answer(self.client.ask(request, call).await?.decision)
    }

    /// Returns what a key could spend at this cost, now and later. Never uses the fallback.
    pub async fn forecast<'a>(&self, ask: impl Into<Call<'a>>) -> Result<Forecast, ClientError> {
        let ask = ask.into();
        let (key, cost) = (wire::key(ask.key())?.into(), wire::cost(ask.units())?);
        let (policy, keys) = (self.policy.to_string(), self.others.to_vec());
        let request = ForecastRequest { policy, key, cost, keys };
        let call = |channel, request| async move { RateLimiterClient::new(channel).forecast(request).await };
        wire::forecast(self.client.ask(request, call).await?.forecast)
    }

    /// Charges tokens to a budget.
    ///
    /// With an id, a debit whose response was lost is sent again, up to three times in all: it counts once. A stream
    /// has one debit in progress at a time and numbers them upwards from 1; [`stream`](Self::stream) does that. Without
    /// an id it is sent once, and may have been counted if no response came.
    pub async fn debit(
        &self,
        key: &str,
        tokens: u64,
        name: Option<DebitId>,
    ) -> Result<RemoteAnswer, ClientError> {
        let (stream, number) =
            name.map_or((Vec::new(), 0), |id| (id.stream.to_be_bytes().to_vec(), id.number));
        let request = DebitRequest {
            policy: self.policy.to_string(),
            key: key.into(),
            tokens: wire::cost(tokens)?,
            stream: stream.into(),
            number,
            lease_id: String::new(),
            keys: self.others.to_vec(),
        };
        let tries = if name.is_some() { DEBIT_TRIES } else { 1 };
        let mut told = self.debit_once(request.clone()).await;
        for _ in 1..tries {
            if !told.as_ref().is_err_and(ClientError::is_outage) {
                break;
            }
            told = self.debit_once(request.clone()).await;
        }
        self.answer(told, Call::by(key).cost(tokens))
    }

    async fn debit_once(&self, request: DebitRequest) -> Result<RemoteAnswer, ClientError> {
        let call = |channel, request| async move { RateLimiterClient::new(channel).debit(request).await };
        wire::answer(self.client.ask(request, call).await?.decision)
    }

    /// Creates a stream of debits of one key, each of which counts once.
    pub fn stream(&self, key: &str) -> RemoteStream {
        RemoteStream::new(self.clone(), key)
    }

    /// Admits work on every axis of the policy. Its lease is renewed until the permit ends.
    pub async fn admit(&self, work: Work<'_>) -> Result<RemoteAdmission, ClientError> {
        if !work.others.is_empty() {
            return self.and(work.others).admit_by(work).await;
        }
        self.admit_by(work).await
    }

    /// The same with the further keys of every call.
    async fn admit_by(&self, work: Work<'_>) -> Result<RemoteAdmission, ClientError> {
        let ask = Call::by(work.key).cost(work.cost);
        let request = AdmitRequest {
            policy: self.policy.to_string(),
            key: work.key.into(),
            cost: wire::cost(work.cost)?,
            hold: i64::try_from(work.hold_ms).unwrap_or(i64::MAX),
            value: i64::try_from(work.value).unwrap_or(i64::MAX),
            keys: self.others.to_vec(),
        };
        let (server, sent) = (self.client.server(), RemotePermit::now());
        let call = |channel, request| async move { RateLimiterClient::new(channel).admit(request).await };
        match self.client.ask_at(&server, request, call).await {
            Ok(told) => {
                let mut answer = wire::answer(told.decision.clone())?;
                answer.binding_axis = answer.binding_axis.or_else(|| wire::axis(&told.binding_axis));
                self.note(&answer);
                let (allowed, policy_denied) = (answer.decision.allowed, told.policy_denied);
                let permit = allowed.then(|| RemotePermit::held(self.clone(), server, told, sent, &work));
                Ok(RemoteAdmission { answer, policy_denied, permit })
            }
            Err(error) => {
                let answer = self.answer(Err(error), ask)?;
                let permit = answer.decision.allowed.then(|| RemotePermit::of_nothing(self.clone(), &work));
                Ok(RemoteAdmission { answer, policy_denied: false, permit })
            }
        }
    }

    /// Returns the server's response, or the fallback's.
    fn answer(
        &self,
        told: Result<RemoteAnswer, ClientError>,
        ask: Call<'_>,
    ) -> Result<RemoteAnswer, ClientError> {
        match told {
            Ok(answer) => {
                self.note(&answer);
                Ok(answer)
            }
            Err(error) if error.is_outage() || matches!(error, ClientError::Closed(_)) => {
                let (decision, guarantee) = match error {
                    ClientError::Closed(_) => Fallback::Closed.answer(ask, self.units()),
                    _ => self.stand_in.answer(ask, self.units()),
                };
                let outage = Some(error);
                Ok(RemoteAnswer { decision, guarantee, binding_axis: None, shadow_denied: false, outage })
            }
            Err(error) => Err(error),
        }
    }

    fn note(&self, answer: &RemoteAnswer) {
        self.units.store(answer.decision.limit, Relaxed);
    }

    /// Returns the maximum number of units admitted at once, as the server last reported.
    pub fn units(&self) -> u64 {
        self.units.load(Relaxed)
    }

    /// Returns the policy's limit, if it was set.
    pub fn limit(&self) -> Option<&Limit> {
        self.limit.as_ref()
    }

    /// Returns the policy's name.
    pub fn policy(&self) -> &str {
        &self.policy
    }

    /// Returns whether work may hold something while it runs: true until the server has reported that it does not.
    pub(crate) fn holds(&self) -> bool {
        self.holds.load(Relaxed)
    }

    /// Records that the policy cannot admit work under a lease.
    pub(crate) fn holds_nothing(&self) {
        self.holds.store(false, Relaxed);
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }
}

fn owned(keys: &[&str]) -> Vec<String> {
    keys.iter().map(|key| (*key).to_owned()).collect()
}

throttlekit::debug_fields!([] RemotePolicy, |it| policy = it.policy);

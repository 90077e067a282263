//! A policy that a server keeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use throttlekit::{
    Ask, Clock, Cost, Decision, Forecast, Guarantee, Limit, LimitError, Limiter, OnOutage, Retry, WallClock,
};
use throttlekit_proto::v1::rate_limiter_client::RateLimiterClient;
use throttlekit_proto::v1::{
    AdmitRequest, CheckManyRequest, CheckRequest, DebitRequest, ForecastRequest, Keys, PeekRequest,
};

use crate::{
    Client, ClientError, DebitId, RemoteAdmission, RemoteAnswer, RemotePermit, RemoteStream, Work, wire,
};

/// The most keys that one request of [`check_many`](RemoteLimiter::check_many) carries. More go in several.
pub const KEYS_AT_ONCE_MAX: usize = 1_000;
/// How often a debit with a name is sent before it is given up.
const DEBIT_TRIES: usize = 3;
/// When to come back after a refusal for an outage: breakers probe several times a second.
const CLOSED_RETRY: Duration = Duration::from_secs(1);

/// A policy that a server keeps: one call for each ask. Cheap to clone.
#[derive(Clone)]
pub struct RemoteLimiter {
    client: Client,
    policy: Arc<str>,
    /// Further keys that every call brings.
    others: Arc<[String]>,
    stand_in: Arc<StandIn>,
    limit: Option<Limit>,
    /// The most units that the server last spoke of.
    units: Arc<AtomicU64>,
}

/// Who answers while the server does not.
pub(crate) enum StandIn {
    Closed,
    Open,
    /// Counts on across outages. Nothing, where the share is less than a unit.
    Local(Option<Box<Limiter>>),
}

impl StandIn {
    pub(crate) fn new(choice: OnOutage, limit: Option<&Limit>) -> Result<Self, LimitError> {
        match choice {
            OnOutage::Closed => Ok(Self::Closed),
            OnOutage::Open => Ok(Self::Open),
            OnOutage::Local { nodes } => {
                let limit = limit.ok_or(LimitError::Policy("a local share is one of a limit: say which"))?;
                let share = limit.share(nodes).map(Limiter::new).transpose()?;
                Ok(Self::Local(share.map(Box::new)))
            }
        }
    }

    fn answer(&self, ask: Ask<'_>, limit: u64) -> (Decision, Guarantee) {
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

impl RemoteLimiter {
    pub(crate) fn closed(client: Client, policy: &str) -> Self {
        Self::new(client, policy, None, StandIn::Closed)
    }

    pub(crate) fn new(client: Client, policy: &str, limit: Option<Limit>, stand_in: StandIn) -> Self {
        let units = Arc::new(AtomicU64::new(limit.map_or(0, |limit| limit.units())));
        let (policy, others) = (policy.into(), Arc::default());
        Self { client, policy, others, stand_in: stand_in.into(), limit, units }
    }

    /// The same policy, where every call brings these keys after its own: for policies that limit by several. Work that
    /// names further keys of its own goes by those.
    #[must_use]
    pub fn and(&self, others: &[&str]) -> Self {
        Self { others: others.iter().map(|&key| key.to_owned()).collect(), ..self.clone() }
    }

    /// Answers one ask, and charges it if allowed.
    pub async fn check<'a>(&self, ask: impl Into<Ask<'a>>) -> Result<RemoteAnswer, ClientError> {
        let ask = ask.into();
        let request = CheckRequest {
            policy: self.policy.to_string(),
            key: wire::key(ask.key)?.into(),
            cost: wire::cost(ask.cost)?,
            keys: self.others.to_vec(),
        };
        let call = |channel, request| async move { RateLimiterClient::new(channel).check(request).await };
        let told = self.client.ask(request, call).await;
        self.answer(told.and_then(|told| wire::answer(told.decision)), ask)
    }

    /// The same with [these keys too](Self::and): all are charged, or none.
    pub async fn check_by<'a>(
        &self,
        ask: impl Into<Ask<'a>>,
        others: &[&str],
    ) -> Result<RemoteAnswer, ClientError> {
        self.and(others).check(ask).await
    }

    /// Answers an ask of this cost for each of many keys, in their order. One that the server does not answer is
    /// answered by [`OnOutage`].
    pub async fn check_many(&self, keys: &[&str], cost: Cost) -> Result<Vec<RemoteAnswer>, ClientError> {
        let mut answers = Vec::with_capacity(keys.len());
        for keys in keys.chunks(KEYS_AT_ONCE_MAX) {
            let (policy, cost_told) = (self.policy.to_string(), wire::cost(cost)?);
            let others = keys.iter().filter(|_| !self.others.is_empty());
            let others = others.map(|_| Keys { keys: self.others.to_vec() }).collect();
            let request = CheckManyRequest { policy, keys: owned(keys), cost: cost_told, others };
            let call =
                |channel, request| async move { RateLimiterClient::new(channel).check_many(request).await };
            let asks = keys.iter().map(|key| Ask::of(*key).cost(cost));
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

    /// Where a key stands, spending nothing. Never answered by a stand-in.
    pub async fn peek(&self, key: &str) -> Result<RemoteAnswer, ClientError> {
        let (policy, keys) = (self.policy.to_string(), self.others.to_vec());
        let request = PeekRequest { policy, key: key.into(), keys };
        let call = |channel, request| async move { RateLimiterClient::new(channel).peek(request).await };
        wire::answer(self.client.ask(request, call).await?.decision)
    }

    /// What a key could spend at the ask's cost, now and later. Never answered by a stand-in.
    pub async fn forecast<'a>(&self, ask: impl Into<Ask<'a>>) -> Result<Forecast, ClientError> {
        let ask = ask.into();
        let (key, cost) = (wire::key(ask.key)?.into(), wire::cost(ask.cost)?);
        let (policy, keys) = (self.policy.to_string(), self.others.to_vec());
        let request = ForecastRequest { policy, key, cost, keys };
        let call = |channel, request| async move { RateLimiterClient::new(channel).forecast(request).await };
        wire::forecast(self.client.ask(request, call).await?.forecast)
    }

    /// Counts tokens against a budget.
    ///
    /// With a name, a debit whose answer was lost is sent again, up to three times in all: it counts once. A stream has
    /// one debit under way at a time and numbers them upwards from 1; [`stream`](Self::stream) does that. Without a
    /// name it is sent once, and may have been counted if no answer came.
    pub async fn debit(
        &self,
        key: &str,
        tokens: Cost,
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
        self.answer(told, Ask::of(key).cost(tokens))
    }

    async fn debit_once(&self, request: DebitRequest) -> Result<RemoteAnswer, ClientError> {
        let call = |channel, request| async move { RateLimiterClient::new(channel).debit(request).await };
        wire::answer(self.client.ask(request, call).await?.decision)
    }

    /// A stream of debits of one key, each of which counts once.
    pub fn stream(&self, key: &str) -> RemoteStream {
        RemoteStream::new(self.clone(), key)
    }

    /// Admits work on every axis of the policy. What it holds is kept alive until the permit ends.
    pub async fn admit(&self, work: Work<'_>) -> Result<RemoteAdmission, ClientError> {
        if !work.others.is_empty() {
            return self.and(work.others).admit_by(work).await;
        }
        self.admit_by(work).await
    }

    /// The same by the keys that every call brings.
    async fn admit_by(&self, work: Work<'_>) -> Result<RemoteAdmission, ClientError> {
        let ask = Ask::of(work.key).cost(work.cost);
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
                let permit = allowed.then(|| RemotePermit::held(self.clone(), server, told, sent, work.key));
                Ok(RemoteAdmission { answer, policy_denied, permit })
            }
            Err(error) => {
                let answer = self.answer(Err(error), ask)?;
                let permit =
                    answer.decision.allowed.then(|| RemotePermit::of_nothing(self.clone(), work.key));
                Ok(RemoteAdmission { answer, policy_denied: false, permit })
            }
        }
    }

    /// The server's answer, or that of whoever stands in for it.
    fn answer(
        &self,
        told: Result<RemoteAnswer, ClientError>,
        ask: Ask<'_>,
    ) -> Result<RemoteAnswer, ClientError> {
        match told {
            Ok(answer) => {
                self.note(&answer);
                Ok(answer)
            }
            Err(error) if error.is_outage() || matches!(error, ClientError::Closed(_)) => {
                let (decision, guarantee) = match error {
                    ClientError::Closed(_) => StandIn::Closed.answer(ask, self.units()),
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

    /// The most units that ever pass at once, as the server last said.
    pub fn units(&self) -> u64 {
        self.units.load(Relaxed)
    }

    /// The policy's limit, where it was stated.
    pub fn limit(&self) -> Option<&Limit> {
        self.limit.as_ref()
    }

    /// The policy's name.
    pub fn policy(&self) -> &str {
        &self.policy
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }
}

fn owned(keys: &[&str]) -> Vec<String> {
    keys.iter().map(|key| (*key).to_owned()).collect()
}

throttlekit::debug_fields!([] RemoteLimiter, |it| policy = it.policy);

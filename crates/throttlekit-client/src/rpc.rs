//! The calls to a server, one method each.

use std::sync::Arc;
use std::time::Duration;

use throttlekit::StoreError;
use throttlekit::store::DebitId;
use throttlekit_proto::v1::admin_client::AdminClient;
use throttlekit_proto::v1::fleet_client::FleetClient;
use throttlekit_proto::v1::rate_limiter_client::RateLimiterClient;
use throttlekit_proto::v1::session_call::Call;
use throttlekit_proto::v1::{
    AdmitRequest, AdmitResponse, CheckManyRequest, CheckRequest, DebitRequest, Decision, Forecast,
    ForecastRequest, Keys, Lease, PeekRequest, ReleaseRequest, ReserveRequest, ResetRequest,
};

use crate::Client;
use crate::client::Server;
use crate::failure::Failure;
use crate::request::Request;

/// Maximum number of attempts of a debit with an id.
const DEBIT_TRIES: usize = 3;
/// Maximum number of attempts of a release before the lease is left to expire.
pub(crate) const RELEASE_TRIES: u32 = 3;

impl Client {
    pub(crate) async fn check(&self, policy: &str, request: &Request) -> Result<Decision, Failure> {
        let server = self.server();
        let message = || CheckRequest {
            policy: policy.into(),
            key: request.key.clone(),
            cost: request.cost,
            keys: request.others.clone(),
        };
        if let Some(decision) = self.ask_session(&server, || Call::Check(message())).await {
            return decision;
        }
        let call = |channel, message| async move { RateLimiterClient::new(channel).check(message).await };
        decided(self.ask(message(), call).await?.decision)
    }

    /// Decides requests of one cost.
    pub(crate) async fn check_many(
        &self,
        policy: &str,
        requests: &[&Request],
    ) -> Result<Vec<Decision>, Failure> {
        let has_others = requests.iter().any(|request| !request.others.is_empty());
        let others = requests.iter().filter(|_| has_others);
        let message = CheckManyRequest {
            policy: policy.into(),
            keys: requests.iter().map(|request| request.key.clone()).collect(),
            cost: requests.first().map_or(1, |request| request.cost),
            others: others.map(|request| Keys { keys: request.others.clone() }).collect(),
        };
        let call =
            |channel, message| async move { RateLimiterClient::new(channel).check_many(message).await };
        let decisions = self.ask(message, call).await?.decisions;
        if decisions.len() == requests.len() { Ok(decisions) } else { Err(no_answer().into()) }
    }

    pub(crate) async fn peek(&self, policy: &str, request: Request) -> Result<Decision, Failure> {
        let message = PeekRequest { policy: policy.into(), key: request.key, keys: request.others };
        let call = |channel, message| async move { RateLimiterClient::new(channel).peek(message).await };
        decided(self.ask(message, call).await?.decision)
    }

    pub(crate) async fn forecast(&self, policy: &str, request: Request) -> Result<Forecast, Failure> {
        let Request { key, others: keys, cost, .. } = request;
        let message = ForecastRequest { policy: policy.into(), key, cost, keys };
        let call = |channel, message| async move { RateLimiterClient::new(channel).forecast(message).await };
        self.ask(message, call).await?.forecast.ok_or_else(|| no_answer().into())
    }

    /// Charges tokens. Sent again if the response was lost: it counts once.
    pub(crate) async fn debit(
        &self,
        policy: &str,
        request: &Request,
        id: DebitId,
    ) -> Result<Decision, Failure> {
        let message = DebitRequest {
            policy: policy.into(),
            key: request.key.clone(),
            tokens: request.cost,
            stream: id.stream.to_be_bytes().to_vec().into(),
            number: id.number,
            lease_id: String::new(),
            keys: request.others.clone(),
        };
        let mut decision = self.debit_once(&message).await;
        for _ in 1..DEBIT_TRIES {
            if !decision.as_ref().is_err_and(Failure::may_pass) {
                break;
            }
            decision = self.debit_once(&message).await;
        }
        decision
    }

    /// Sends one debit to the server in use, once.
    async fn debit_once(&self, message: &DebitRequest) -> Result<Decision, Failure> {
        if let Some(decision) = self.ask_session(&self.server(), || Call::Debit(message.clone())).await {
            return decision;
        }
        let call = |channel, message| async move { RateLimiterClient::new(channel).debit(message).await };
        decided(self.ask(message.clone(), call).await?.decision)
    }

    /// Sends one debit to this server, once.
    pub(crate) async fn debit_at(&self, server: &Server, message: DebitRequest) -> Result<Decision, Failure> {
        if let Some(decision) = self.ask_session(server, || Call::Debit(message.clone())).await {
            return decision;
        }
        let call = |channel, message| async move { RateLimiterClient::new(channel).debit(message).await };
        decided(self.ask_at(server, message, call).await?.decision)
    }

    /// Admits work, now or after waiting for up to `wait`. Returns the server that holds its lease.
    pub(crate) async fn admit(
        &self,
        policy: &str,
        request: &Request,
        wait: Duration,
    ) -> Result<(Arc<Server>, Decision, AdmitResponse), Failure> {
        let message = AdmitRequest {
            policy: policy.into(),
            key: request.key.clone(),
            // The server learns the cost of a request without one.
            cost: if request.hint.is_some() { 0 } else { request.cost },
            hold: request.hold_ms,
            value: request.value,
            keys: request.others.clone(),
            wait_ms: i64::try_from(wait.as_millis()).unwrap_or(i64::MAX),
            priority: request.priority.into(),
            hint: request.hint.clone(),
        };
        let call = |channel, message| async move { RateLimiterClient::new(channel).admit(message).await };
        let (server, mut response) = self.ask_waiting(wait, message, call).await?;
        let decision = decided(response.decision.take())?;
        Ok((server, decision, response))
    }

    /// Releases a lease, which is idempotent.
    pub(crate) async fn release(&self, server: &Server, message: ReleaseRequest) -> Result<(), Failure> {
        let mut released = Ok(());
        for _ in 0..RELEASE_TRIES {
            let call =
                |channel, message| async move { RateLimiterClient::new(channel).release(message).await };
            released = self.ask_at(server, message.clone(), call).await.map(drop);
            if !released.as_ref().is_err_and(Failure::may_pass) {
                break;
            }
        }
        released
    }

    pub(crate) async fn reserve(&self, message: ReserveRequest) -> Result<Lease, Failure> {
        let call = |channel, message| async move { FleetClient::new(channel).reserve(message).await };
        self.ask(message, call).await?.lease.ok_or_else(|| no_answer().into())
    }

    pub(crate) async fn reset(&self, policy: &str, request: Request) -> Result<(), Failure> {
        let message = ResetRequest { policy: policy.into(), key: request.key, keys: request.others };
        let call = |channel, message| async move { AdminClient::new(channel).reset(message).await };
        self.ask(message, call).await.map(drop)
    }
}

fn decided(decision: Option<Decision>) -> Result<Decision, Failure> {
    decision.ok_or_else(|| no_answer().into())
}

fn no_answer() -> StoreError {
    StoreError::bad_state("the response of the server has no decision")
}

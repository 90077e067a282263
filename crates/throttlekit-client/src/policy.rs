//! A policy on a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use throttlekit::rate::Forecast;
use throttlekit::store::DebitId;
use throttlekit::{Admission, Answer, Call, Limit, SharedPermit, StoreError};

use crate::failure::Failure;
use crate::fallback::{Fallback, closed};
use crate::permit::RemotePermit;
use crate::request::Request;
use crate::{Client, CostHint, RemotePolicyBuilder, wire};

/// Maximum number of keys in one `CheckMany`.
const KEYS_AT_ONCE_MAX: usize = 1_000;

/// A policy on a server: one call per request. Cheap to clone.
///
/// Keys are text on the wire, and a cost is at least 1. Of a [`Call`], the server gets the keys, the cost, and for
/// [`admit`](Self::admit) the value, the priority and the expected hold time. The instants in a decision are of the server's clock, in
/// whole milliseconds, rounded up.
///
/// ```no_run
/// use throttlekit::Call;
/// use throttlekit_client::Client;
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let chat = Client::new("http://127.0.0.1:50051")?.policy("chat");
/// let mut permit = chat.admit(Call::by("alice").and(&["acme"]).cost(1_500)).await?.into_permit()?;
/// permit.debit(80).await?;
/// permit.success();
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RemotePolicy {
    shared: Arc<Shared>,
    /// Maximum time that an admission waits on the server.
    wait: Duration,
}

struct Shared {
    client: Client,
    name: Box<str>,
    fallback: Fallback,
    limit: Option<Limit>,
    /// The maximum number of units that the server last reported.
    units: AtomicU64,
    /// `true` if work holds something while it runs, as far as known.
    holds: AtomicBool,
}

impl RemotePolicy {
    /// Creates a builder for the policy with this name. [`Client::policy`] creates one with the defaults.
    pub fn builder(client: &Client, name: &str) -> RemotePolicyBuilder {
        RemotePolicyBuilder::new(client.clone(), name)
    }

    pub(crate) fn new(client: Client, name: &str, limit: Option<Limit>, fallback: Fallback) -> Self {
        let units = AtomicU64::new(limit.map_or(0, |limit| limit.units()));
        let (name, holds) = (name.into(), AtomicBool::new(true));
        Self {
            shared: Arc::new(Shared { client, name, fallback, limit, units, holds }),
            wait: Duration::ZERO,
        }
    }

    pub(crate) fn waiting(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    /// Decides one request, and charges it if allowed. A policy that holds a slot while work runs is
    /// [admitted](Self::admit), and a token budget is [debited](Self::debit).
    pub async fn check<'a>(&self, call: impl Into<Call<'a>>) -> Result<Answer, StoreError> {
        let request = Request::of(&call.into())?;
        let decision = self.client().check(self.name(), &request).await;
        self.answer(decision.map(|decision| wire::answer(&decision)), &request)
    }

    /// Decides several requests, each independently and in order. Consecutive requests of one cost, up to 1,000, are one
    /// call. Requests without a response get the fallback.
    pub async fn check_many<'a, T: Into<Call<'a>>>(
        &self,
        calls: impl IntoIterator<Item = T>,
    ) -> Vec<Result<Answer, StoreError>> {
        let requests: Vec<_> = calls.into_iter().map(|call| Request::of(&call.into())).collect();
        let cost = |request: &Result<Request, StoreError>| request.as_ref().ok().map(|request| request.cost);
        let mut answers = Vec::with_capacity(requests.len());
        for same_cost in requests.chunk_by(|one, next| cost(one) == cost(next)) {
            for batch in same_cost.chunks(KEYS_AT_ONCE_MAX) {
                match batch.iter().map(Result::as_ref).collect::<Result<Vec<_>, _>>() {
                    Ok(batch) => answers.extend(self.check_batch(&batch).await),
                    Err(_) => answers.extend(batch.iter().cloned().filter_map(Result::err).map(Err)),
                }
            }
        }
        answers
    }

    async fn check_batch(&self, requests: &[&Request]) -> Vec<Result<Answer, StoreError>> {
        let each: Vec<_> = match self.client().check_many(self.name(), requests).await {
            Ok(decisions) => decisions.iter().map(|decision| Ok(wire::answer(decision))).collect(),
            Err(failure) => requests.iter().map(|_| Err(failure.clone())).collect(),
        };
        each.into_iter().zip(requests).map(|(told, request)| self.answer(told, request)).collect()
    }

    /// Decides one request on every axis of the policy. What it holds is renewed until the permit ends.
    ///
    /// A policy that holds nothing while work runs is checked instead, and its permit holds nothing. The server reports
    /// one decision, and the axis only of a denial: in [`Admission::axes`], an admission is one of the rate.
    ///
    /// The permit fences itself: when the server has reclaimed its lease, or when this process could not renew it in time
    /// by its own clock, which is never later than the server does.
    pub async fn admit<'a>(&self, call: impl Into<Call<'a>>) -> Result<Admission, StoreError> {
        self.admit_request(Request::of(&call.into())?).await
    }

    /// Like [`admit`](Self::admit), where the policy learns what to reserve (`learn` in the policy file). The cost of the
    /// call counts only where nothing is learned: in a fallback, and for a policy that holds nothing while work runs.
    ///
    /// Settle the permit with the actual cost, or debit it while the work runs: the server learns from that.
    ///
    /// ```no_run
    /// use throttlekit_client::{Client, CostHint};
    ///
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let chat = Client::new("http://127.0.0.1:50051")?.policy("chat");
    /// let hint = CostHint::class("small-model").input(820).at_most(4_096);
    /// let mut permit = chat.admit_learned("alice", hint).await?.into_permit()?;
    /// permit.settle(1_140);
    /// permit.success();
    /// # Ok(())
    /// # }
    /// ```
    pub async fn admit_learned<'a>(
        &self,
        call: impl Into<Call<'a>>,
        hint: CostHint,
    ) -> Result<Admission, StoreError> {
        let request = Request::of(&call.into())?;
        self.admit_request(Request { hint: Some(hint.message()), ..request }).await
    }

    /// Opens a stream of debits by the keys of a call: a permit that holds and reserves nothing, for policies that are
    /// only a token budget. Each of its debits counts once, however often the network delivers it.
    pub fn stream<'a>(&self, call: impl Into<Call<'a>>) -> Result<SharedPermit, StoreError> {
        let request = Request::of(&call.into())?;
        Ok(SharedPermit::new(RemotePermit::unheld(self.clone(), request)))
    }

    /// Returns the state of a key without charging. No fallback applies.
    pub async fn peek<'a>(&self, call: impl Into<Call<'a>>) -> Result<Answer, StoreError> {
        let request = Request::of(&call.into())?;
        Ok(wire::answer(&self.client().peek(self.name(), request).await?))
    }

    /// Returns what a key could spend at this cost, now and later. No fallback applies.
    pub async fn forecast<'a>(&self, call: impl Into<Call<'a>>) -> Result<Forecast, StoreError> {
        let request = Request::of(&call.into())?;
        Ok(wire::forecast(&self.client().forecast(self.name(), request).await?))
    }

    /// Forgets what the keys of a call have used: their next request counts as their first. Units that are leased out
    /// stay leased. The caller needs the endpoint `admin`. No fallback applies.
    pub async fn reset<'a>(&self, call: impl Into<Call<'a>>) -> Result<(), StoreError> {
        let request = Request::of(&call.into())?;
        Ok(self.client().reset(self.name(), request).await?)
    }

    /// Charges the cost of a call to a token budget, once.
    ///
    /// A debit whose response was lost is sent again, up to three times in all. A stream has one debit in progress at a
    /// time and numbers them upwards from 1; [`stream`](Self::stream) does that.
    pub async fn debit<'a>(&self, call: impl Into<Call<'a>>, id: DebitId) -> Result<Answer, StoreError> {
        self.debit_request(&Request::of(&call.into())?, id).await
    }

    pub(crate) async fn debit_request(&self, request: &Request, id: DebitId) -> Result<Answer, StoreError> {
        let decision = self.client().debit(self.name(), request, id).await;
        self.answer(decision.map(|decision| wire::answer(&decision)), request)
    }

    /// Returns the server's response, or the fallback's.
    pub(crate) fn answer(
        &self,
        told: Result<Answer, Failure>,
        request: &Request,
    ) -> Result<Answer, StoreError> {
        let (mut answer, failure) = match told {
            Ok(answer) => return Ok(self.note(answer)),
            Err(Failure::Closed(why)) => (closed(self.units()), Failure::Closed(why)),
            Err(failure) if failure.is_outage() => {
                (self.shared.fallback.answer(request.call(), self.units()), failure)
            }
            Err(failure) => return Err(failure.into()),
        };
        answer.outage = Some(failure.into());
        Ok(answer)
    }

    /// Records what a response of the server reports.
    pub(crate) fn note(&self, answer: Answer) -> Answer {
        self.shared.units.store(answer.limit, Relaxed);
        answer
    }

    /// Returns the policy's name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Returns the maximum number of units admitted at once, as the server last reported.
    pub(crate) fn units(&self) -> u64 {
        self.shared.units.load(Relaxed)
    }

    /// Returns the policy's limit, if it was set.
    pub(crate) fn limit(&self) -> Option<&Limit> {
        self.shared.limit.as_ref()
    }

    /// Returns whether work may hold something while it runs: true until the server has reported that it does not.
    pub(crate) fn holds(&self) -> bool {
        self.shared.holds.load(Relaxed)
    }

    /// Records whether the policy admits work under a lease.
    pub(crate) fn set_holds(&self, holds: bool) {
        self.shared.holds.store(holds, Relaxed);
    }

    /// Returns the maximum time that an admission waits on the server.
    pub(crate) fn wait(&self) -> Duration {
        self.wait
    }

    pub(crate) fn client(&self) -> &Client {
        &self.shared.client
    }
}

throttlekit::debug_fields!([] RemotePolicy, |it| name = it.name());

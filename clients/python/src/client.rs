//! The client of a ThrottleKit server.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use throttlekit::store::DebitId;

use crate::args::{Cost, Extra, OwnedCall, Span, owned_calls};
use crate::decision::Forecast;
use crate::errors::{self, Failure};
use crate::limiter::{admitted, answered, done, each_answered, on_outage};
use crate::monitor::{Watch, parsed, snapshot, watch};
use crate::pending::Pending;
use crate::permit::Permit;
use crate::process::{PerProcess, Process};
use crate::values::LimitArg;

/// A client of a ThrottleKit server, or of several that share a store.
///
/// `uri` is `http://host:port`, or `https://host:port` with `trust`. `deadline` limits each call. Default: 250 ms. With
/// `sessions=False` checks and debits are calls of their own, instead of sharing one stream per connection.
#[pyclass(frozen, module = "throttlekit")]
pub(crate) struct Client(pub(crate) Arc<Endpoint>);

/// The settings of a client and, in each process, its connections.
pub(crate) struct Endpoint {
    settings: Settings,
    cell: PerProcess<throttlekit_client::Client>,
}

struct Settings {
    uris: Vec<String>,
    deadline: Option<Span>,
    connections: Option<usize>,
    trust: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
    server_name: Option<String>,
    token: Option<String>,
    token_file: Option<PathBuf>,
    sessions: bool,
}

/// One address or several.
#[derive(FromPyObject)]
enum Uris {
    One(String),
    Several(Vec<String>),
}

#[pymethods]
impl Client {
    #[new]
    #[pyo3(signature = (
        uri, *, deadline=None, connections=None, trust=None, identity=None, server_name=None, token=None,
        token_file=None, sessions=true
    ))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn new(
        py: Python<'_>,
        uri: Uris,
        deadline: Option<Span>,
        connections: Option<usize>,
        trust: Option<Vec<u8>>,
        identity: Option<(Vec<u8>, Vec<u8>)>,
        server_name: Option<String>,
        token: Option<String>,
        token_file: Option<PathBuf>,
        sessions: bool,
    ) -> PyResult<Self> {
        let uris = match uri {
            Uris::One(uri) => vec![uri],
            Uris::Several(uris) => uris,
        };
        let settings = Settings {
            uris,
            deadline,
            connections,
            trust,
            identity,
            server_name,
            token,
            token_file,
            sessions,
        };
        let client = Self(Arc::new(Endpoint { settings, cell: PerProcess::new() }));
        client.0.get(py)?;
        Ok(client)
    }

    /// Returns one policy of the server. `on_outage` decides while the server is unreachable: `"closed"` denies,
    /// `"open"` allows, and `"local"` with `nodes=n` continues with one part in `n` of `limit`. `wait` is the longest time
    /// that `admit` waits on the server, whose policy has to allow it. Default: 0 s.
    #[pyo3(signature = (name, *, on_outage="closed", nodes=None, limit=None, wait=None))]
    fn policy(
        &self,
        py: Python<'_>,
        name: String,
        on_outage: &str,
        nodes: Option<u32>,
        limit: Option<LimitArg>,
        wait: Option<Span>,
    ) -> PyResult<RemotePolicy> {
        let limit = limit.map(LimitArg::limit).transpose()?;
        let fallback = self::on_outage(on_outage, nodes)?;
        let (client, cell) = (self.0.clone(), PerProcess::new());
        let policy = RemotePolicy { client, name, fallback, limit, wait: wait.map(|Span(wait)| wait), cell };
        policy.get(py)?;
        Ok(policy)
    }

    /// Returns the state of the server in use: policies, concurrency limits, latest denials, store and configuration.
    /// Names are those of `throttlekit.v1` in JSON. The caller needs the endpoint `monitor`.
    fn snapshot(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        parsed(py, Process::get(py)?.wait(py, snapshot(self.0.get(py)?))?)
    }

    /// Returns the state of the server, for asyncio.
    fn snapshot_async(&self, py: Python<'_>) -> PyResult<Pending> {
        Pending::spawn(py, snapshot(self.0.get(py)?), parsed)
    }

    /// Subscribes to denials of a policy as they happen. Default: of all policies. The caller needs the endpoint
    /// `monitor`. Under load the server drops events.
    #[pyo3(signature = (policy=String::new()))]
    fn watch(&self, py: Python<'_>, policy: String) -> PyResult<Watch> {
        let watching = watch(self.0.get(py)?, policy);
        Watch::new(py, Process::get(py)?.wait(py, watching)?)
    }

    /// Subscribes to denials, for asyncio: `async for denial in await client.watch_async(): …`.
    #[pyo3(signature = (policy=String::new()))]
    fn watch_async(&self, py: Python<'_>, policy: String) -> PyResult<Pending> {
        Pending::spawn(py, watch(self.0.get(py)?, policy), |py, denials| {
            Watch::new(py, denials)?.into_py_any(py)
        })
    }
}

impl Endpoint {
    /// Returns the client of this process. Does not connect.
    pub(crate) fn get(&self, py: Python<'_>) -> PyResult<Arc<throttlekit_client::Client>> {
        self.cell.get(py, || {
            let runtime = Process::get(py)?.handle();
            let _entered = runtime.enter();
            let mut uris = self.settings.uris.iter();
            let mut builder = throttlekit_client::Client::builder(uris.next().cloned().unwrap_or_default());
            for uri in uris {
                builder = builder.endpoint(uri);
            }
            self.settings
                .apply(builder.runtime(runtime.clone()))
                .build()
                .map_err(|error| errors::build(&error))
        })
    }
}

impl Settings {
    fn apply(&self, mut builder: throttlekit_client::ClientBuilder) -> throttlekit_client::ClientBuilder {
        if let Some(Span(deadline)) = self.deadline {
            builder = builder.deadline(deadline);
        }
        if let Some(connections) = self.connections {
            builder = builder.connections(connections);
        }
        if let Some(ca) = &self.trust {
            builder = builder.trust(ca);
        }
        if let Some((certificate, key)) = &self.identity {
            builder = builder.identity(certificate, key);
        }
        if let Some(name) = &self.server_name {
            builder = builder.server_name(name);
        }
        if let Some(token) = &self.token {
            builder = builder.token(token);
        }
        if let Some(path) = &self.token_file {
            builder = builder.token_file(path);
        }
        builder.sessions(self.sessions)
    }
}

/// A policy of a server.
#[pyclass(frozen, module = "throttlekit")]
pub(crate) struct RemotePolicy {
    client: Arc<Endpoint>,
    name: String,
    fallback: throttlekit::OnOutage,
    limit: Option<throttlekit::Limit>,
    wait: Option<Duration>,
    cell: PerProcess<throttlekit_client::RemotePolicy>,
}

impl RemotePolicy {
    fn get(&self, py: Python<'_>) -> PyResult<throttlekit_client::RemotePolicy> {
        let policy = self.cell.get(py, || {
            let client = self.client.get(py)?;
            let mut builder =
                throttlekit_client::RemotePolicy::builder(&client, &self.name).on_outage(self.fallback);
            if let Some(limit) = self.limit {
                builder = builder.limit(limit);
            }
            if let Some(wait) = self.wait {
                builder = builder.wait(wait);
            }
            builder.build().map_err(|error| errors::build(&error))
        })?;
        Ok((*policy).clone())
    }
}

#[pymethods]
impl RemotePolicy {
    /// Name of the policy.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// Decides one request, and charges it if allowed.
    #[pyo3(signature = (key, cost=1))]
    fn check(&self, py: Python<'_>, key: &Bound<'_, PyAny>, cost: u64) -> PyResult<Py<PyAny>> {
        let checked = checked(self.get(py)?, request(key, cost)?);
        answered(py, Process::get(py)?.wait(py, checked)?)
    }

    /// Decides one request, for asyncio.
    #[pyo3(signature = (key, cost=1))]
    fn check_async(&self, py: Python<'_>, key: &Bound<'_, PyAny>, cost: u64) -> PyResult<Pending> {
        Pending::spawn(py, checked(self.get(py)?, request(key, cost)?), answered)
    }

    /// Decides several requests, each independently and in order. An item is a key, or a pair of a key and its cost.
    #[pyo3(signature = (keys, cost=1))]
    fn check_many(&self, py: Python<'_>, keys: &Bound<'_, PyAny>, cost: u64) -> PyResult<Vec<Py<PyAny>>> {
        let all = checked_all(self.get(py)?, owned_calls(keys, &Cost::All(cost))?);
        each_answered(py, Process::get(py)?.wait(py, all)?)
    }

    /// Decides several requests, for asyncio.
    #[pyo3(signature = (keys, cost=1))]
    fn check_many_async(&self, py: Python<'_>, keys: &Bound<'_, PyAny>, cost: u64) -> PyResult<Pending> {
        let all = checked_all(self.get(py)?, owned_calls(keys, &Cost::All(cost))?);
        Pending::spawn(py, all, |py, answers| each_answered(py, answers)?.into_py_any(py))
    }

    /// Returns the state of a key, without charging. No fallback applies.
    fn peek(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        answered(py, Process::get(py)?.wait(py, peeked(self.get(py)?, request(key, 1)?))?)
    }

    /// Returns the state of a key, for asyncio.
    fn peek_async(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Pending> {
        Pending::spawn(py, peeked(self.get(py)?, request(key, 1)?), answered)
    }

    /// Returns what a key can spend at this cost, now and later. No fallback applies.
    #[pyo3(signature = (key, cost=1))]
    fn forecast(&self, py: Python<'_>, key: &Bound<'_, PyAny>, cost: u64) -> PyResult<Forecast> {
        Ok(Forecast(Process::get(py)?.wait(py, forecast(self.get(py)?, request(key, cost)?))??))
    }

    /// Returns what a key can spend, for asyncio.
    #[pyo3(signature = (key, cost=1))]
    fn forecast_async(&self, py: Python<'_>, key: &Bound<'_, PyAny>, cost: u64) -> PyResult<Pending> {
        let forecast = forecast(self.get(py)?, request(key, cost)?);
        Pending::spawn(py, forecast, |py, forecast| Forecast(forecast?).into_py_any(py))
    }

    /// Charges a token budget once, however often the debit is sent: `stream` names a stream of debits, `number` counts
    /// from 1.
    #[pyo3(signature = (key, cost, *, stream, number))]
    fn debit(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        cost: u64,
        stream: u128,
        number: u64,
    ) -> PyResult<Py<PyAny>> {
        let debited = debited(self.get(py)?, request(key, cost)?, DebitId { stream, number });
        answered(py, Process::get(py)?.wait(py, debited)?)
    }

    /// Charges a token budget once, for asyncio.
    #[pyo3(signature = (key, cost, *, stream, number))]
    fn debit_async(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        cost: u64,
        stream: u128,
        number: u64,
    ) -> PyResult<Pending> {
        let debited = debited(self.get(py)?, request(key, cost)?, DebitId { stream, number });
        Pending::spawn(py, debited, answered)
    }

    /// Decides one request on every axis of the policy. What it holds is renewed until the permit ends. `priority` orders
    /// those that wait, and 0 is the most urgent; `value` is what the work is worth, for policies with prices. With a
    /// `hint`, a policy that learns reserves what it has learned, and `cost` counts only where nothing is learned.
    #[pyo3(signature = (key, cost=1, *, priority=None, value=None, hint=None))]
    fn admit(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        cost: u64,
        priority: Option<u8>,
        value: Option<f64>,
        hint: Option<&CostHint>,
    ) -> PyResult<Py<PyAny>> {
        let call = OwnedCall::new(key, Cost::All(cost), Extra { priority, value, weight: None })?;
        admitted(py, Process::get(py)?.wait(py, entered(self.get(py)?, call, hint.cloned()))?)
    }

    /// Decides one request, for asyncio: `async with policy.admit_async(key) as admission:`.
    #[pyo3(signature = (key, cost=1, *, priority=None, value=None, hint=None))]
    fn admit_async(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        cost: u64,
        priority: Option<u8>,
        value: Option<f64>,
        hint: Option<&CostHint>,
    ) -> PyResult<Pending> {
        let call = OwnedCall::new(key, Cost::All(cost), Extra { priority, value, weight: None })?;
        Pending::spawn(py, entered(self.get(py)?, call, hint.cloned()), admitted)
    }

    /// Forgets what a key has used: its next request counts as its first. Units that are leased out stay leased. The
    /// caller needs the endpoint `admin`.
    fn reset(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        Ok(Process::get(py)?.wait(py, reset(self.get(py)?, request(key, 1)?))??)
    }

    /// Forgets what a key has used, for asyncio.
    fn reset_async(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Pending> {
        Pending::spawn(py, reset(self.get(py)?, request(key, 1)?), done)
    }

    /// Opens a stream of debits: a permit that holds and reserves nothing, for policies that are only a token budget.
    fn stream(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Permit> {
        let policy = self.get(py)?;
        let permit = request(key, 1)?.with(|call| policy.stream(call));
        permit.map(Permit::new).map_err(|error| errors::store(&error))
    }
}

/// A hint of what work costs before it is done, for policies of a server that learn what to reserve.
///
/// Reservations are learned for each `class_` of work, such as the name of a model. `input` tokens are reserved in any
/// case, and the work uses `at_most` tokens beyond them.
#[pyclass(frozen, eq, module = "throttlekit")]
#[derive(Clone, PartialEq)]
pub(crate) struct CostHint(throttlekit_client::CostHint);

#[pymethods]
impl CostHint {
    #[new]
    #[pyo3(signature = (class_="", *, input=0, at_most=None))]
    fn new(class_: &str, input: u64, at_most: Option<u64>) -> Self {
        let hint = throttlekit_client::CostHint::class(class_).input(input);
        Self(match at_most {
            Some(tokens) => hint.at_most(tokens),
            None => hint,
        })
    }

    fn __repr__(&self) -> String {
        let throttlekit_client::CostHint { input_tokens, max_tokens, class, .. } = &self.0;
        let at_most = max_tokens.map_or_else(|| "None".to_owned(), |tokens| tokens.to_string());
        format!("CostHint({class:?}, input={input_tokens}, at_most={at_most})")
    }
}

type Remote = throttlekit_client::RemotePolicy;

fn request(key: &Bound<'_, PyAny>, cost: u64) -> PyResult<OwnedCall> {
    OwnedCall::new(key, Cost::All(cost), Extra::default())
}

async fn checked(policy: Remote, call: OwnedCall) -> Result<throttlekit::Answer, Failure> {
    let others = call.others();
    Ok(policy.check(call.call(&others)).await?)
}

async fn checked_all(
    policy: Remote,
    calls: Vec<OwnedCall>,
) -> Result<Vec<Result<throttlekit::Answer, throttlekit::StoreError>>, Failure> {
    let others: Vec<_> = calls.iter().map(OwnedCall::others).collect();
    let borrowed: Vec<_> = calls.iter().zip(&others).map(|(call, others)| call.call(others)).collect();
    Ok(policy.check_many(borrowed).await)
}

async fn peeked(policy: Remote, call: OwnedCall) -> Result<throttlekit::Answer, Failure> {
    let others = call.others();
    Ok(policy.peek(call.call(&others)).await?)
}

async fn forecast(policy: Remote, call: OwnedCall) -> Result<throttlekit::rate::Forecast, Failure> {
    let others = call.others();
    Ok(policy.forecast(call.call(&others)).await?)
}

async fn debited(policy: Remote, call: OwnedCall, id: DebitId) -> Result<throttlekit::Answer, Failure> {
    let others = call.others();
    Ok(policy.debit(call.call(&others), id).await?)
}

async fn entered(
    policy: Remote,
    call: OwnedCall,
    hint: Option<CostHint>,
) -> Result<throttlekit::Admission, Failure> {
    let others = call.others();
    let call = call.call(&others);
    Ok(match hint {
        Some(CostHint(hint)) => policy.admit_learned(call, hint).await?,
        None => policy.admit(call).await?,
    })
}

async fn reset(policy: Remote, call: OwnedCall) -> Result<(), Failure> {
    let others = call.others();
    Ok(policy.reset(call.call(&others)).await?)
}

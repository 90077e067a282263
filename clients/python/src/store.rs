//! Stores: where shared limits are counted.

use std::sync::Arc;
use std::time::Duration;

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use throttlekit::store::{
    Charge, Charges, Decided, MembershipStore, MemoryStore, Outcome, RegionStore, SlotStore, Store as Stores,
};
use throttlekit::{StoreError, forward_store};
use throttlekit_postgres::PostgresStore;
use throttlekit_redis::RedisStore;
use tokio::runtime::Handle;
use tokio::sync::OnceCell;
use tokio::time::timeout;

use crate::address::Address;
use crate::args::Span;
use crate::errors;
use crate::pending::Pending;
use crate::process::{PerProcess, Process};

/// Longest time that connecting takes.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// A store that several processes share: Redis, Valkey or PostgreSQL, by URL. `"memory"` counts in this process.
///
/// The URL is that of the server's `--store`: `redis://host`, `redis+cluster://a,b`, `redis+sentinel://a,b/service`,
/// `postgres://host`; with `rediss` for TLS. A user and password apply to the servers, and `sentinel_password` to the
/// Sentinels themselves.
///
/// Connects with the first call, and again after a fork. `deadline` limits each call. `ca` is the certificate authority
/// of the servers, as PEM text or bytes; default: those of the system. On PostgreSQL, `schema` names the schema, and with
/// `migrate=True` connecting creates or upgrades it.
#[pyclass(frozen, module = "throttlekit")]
pub(crate) struct Store(pub(crate) Arc<StoreCell>);

#[pymethods]
impl Store {
    #[new]
    #[pyo3(signature = (url, *, deadline=None, ca=None, schema=None, migrate=false, sentinel_password=None))]
    fn new(
        url: &str,
        deadline: Option<Span>,
        ca: Option<&Bound<'_, PyAny>>,
        schema: Option<String>,
        migrate: bool,
        sentinel_password: Option<&str>,
    ) -> PyResult<Self> {
        let ca = ca.map(pem).transpose()?;
        let address = Address::parse(url, sentinel_password).map_err(PyValueError::new_err)?;
        let spec = Spec { address, deadline: deadline.map(|deadline| deadline.0), ca, schema, migrate };
        Ok(Self(Arc::new(StoreCell { spec: Arc::new(spec), cell: PerProcess::new() })))
    }

    /// Connects now. Without it, the first call connects.
    fn connect(&self, py: Python<'_>) -> PyResult<()> {
        let store = self.0.link(py)?;
        Process::get(py)?
            .wait(py, async { store.backend().await.map(drop) })?
            .map_err(|error| errors::store(&error))
    }

    /// Connects now, for asyncio.
    fn connect_async(&self, py: Python<'_>) -> PyResult<Pending> {
        let store = self.0.link(py)?;
        let connecting = async move { store.backend().await.map(drop) };
        Pending::spawn(py, connecting, |py, connected| match connected {
            Ok(()) => py.None().into_py_any(py),
            Err(error) => Err(errors::store(&error)),
        })
    }

    /// Kind of the store: `memory`, `redis` or `postgres`.
    #[getter]
    fn kind(&self) -> &'static str {
        self.0.spec.address.kind()
    }

    fn __repr__(&self) -> String {
        // A URL may hold a password.
        format!("Store({})", self.kind())
    }
}

/// Returns the bytes of a certificate, given as text or bytes.
fn pem(ca: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    match ca.cast::<PyString>() {
        Ok(text) => Ok(text.to_str()?.as_bytes().to_vec()),
        Err(_) => ca.extract(),
    }
}

/// A store, as an argument: a `Store` or its URL.
pub(crate) struct StoreArg(pub(crate) Arc<StoreCell>);

impl<'py> FromPyObject<'_, 'py> for StoreArg {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(url) = value.cast::<PyString>() {
            return Ok(Self(Store::new(url.to_str()?, None, None, None, false, None)?.0));
        }
        match value.cast::<Store>() {
            Ok(store) => Ok(Self(store.get().0.clone())),
            Err(_) => Err(PyTypeError::new_err("invalid store: expected a Store or its URL")),
        }
    }
}

/// A store and, in each process, its connections.
pub(crate) struct StoreCell {
    spec: Arc<Spec>,
    cell: PerProcess<OnceCell<Backend>>,
}

/// The settings of a store.
struct Spec {
    address: Address,
    deadline: Option<Duration>,
    ca: Option<Vec<u8>>,
    schema: Option<String>,
    migrate: bool,
}

impl StoreCell {
    /// Returns the store of this process. Does not connect.
    pub(crate) fn link(&self, py: Python<'_>) -> PyResult<Link> {
        let cell = self.cell.get(py, || Ok(OnceCell::new()))?;
        Ok(Link { cell, spec: self.spec.clone(), runtime: Process::get(py)?.handle() })
    }
}

/// The store of one process, connected or not.
pub(crate) struct Link {
    cell: Arc<OnceCell<Backend>>,
    spec: Arc<Spec>,
    runtime: Handle,
}

impl Link {
    /// Returns the store, and connects first if needed. Concurrent callers share one attempt.
    pub(crate) async fn backend(&self) -> Result<&Backend, StoreError> {
        let connect = || async {
            let connected = timeout(CONNECT_MAX, self.spec.connect(self.runtime.clone())).await;
            connected.unwrap_or(Err(StoreError::Deadline(CONNECT_MAX)))
        };
        self.cell.get_or_try_init(connect).await
    }
}

impl Spec {
    async fn connect(&self, runtime: Handle) -> Result<Backend, StoreError> {
        let redis = |mut builder: throttlekit_redis::RedisStoreBuilder| async {
            builder = builder.runtime(runtime.clone());
            if let Some(deadline) = self.deadline {
                builder = builder.deadline(deadline);
            }
            if let Some(ca) = self.ca.clone() {
                builder = builder.ca(ca);
            }
            Ok(Backend::Redis(Arc::new(builder.connect().await?)))
        };
        match &self.address {
            Address::Memory => Ok(Backend::memory(runtime)),
            Address::Redis(url) => redis(RedisStore::builder(url)).await,
            Address::RedisCluster(urls) => redis(RedisStore::cluster(urls.clone())).await,
            Address::RedisSentinel { sentinels, service, servers } => {
                redis(RedisStore::sentinel(sentinels.clone(), service).servers(servers)).await
            }
            Address::Postgres(url) => {
                let mut builder =
                    PostgresStore::builder(url).runtime(runtime).migrate_on_connect(self.migrate);
                if let Some(deadline) = self.deadline {
                    builder = builder.deadline(deadline);
                }
                if let Some(schema) = &self.schema {
                    builder = builder.schema(schema);
                }
                if let Some(ca) = &self.ca {
                    builder = builder.tls(trusting(ca)?);
                }
                Ok(Backend::Postgres(Arc::new(builder.connect().await?)))
            }
        }
    }
}

/// Creates a TLS configuration that trusts these certificates.
fn trusting(pem: &[u8]) -> Result<rustls::ClientConfig, StoreError> {
    let wrong = |error: &dyn std::fmt::Display| {
        StoreError::misconfigured(format!("certificate authority of the store: {error}: expected PEM"))
    };
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| wrong(&error))?;
        roots.add(certificate).map_err(|error| wrong(&error))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Ok(builder.map_err(|error| wrong(&error))?.with_root_certificates(roots).with_no_client_auth())
}

/// A connected store.
#[derive(Clone)]
pub(crate) enum Backend {
    Memory(Arc<MemoryStore>),
    Redis(Arc<RedisStore>),
    Postgres(Arc<PostgresStore>),
}

impl Backend {
    pub(crate) fn memory(runtime: Handle) -> Self {
        Self::Memory(Arc::new(MemoryStore::new().runtime(runtime)))
    }
}

/// Queries whichever store it is.
macro_rules! see {
    ($self:ident, $store:ident => $see:expr) => {
        match $self {
            Backend::Memory($store) => $see,
            Backend::Redis($store) => $see,
            Backend::Postgres($store) => $see,
        }
    };
}

/// Runs a call on whichever store it is. Futures of remote stores take kilobytes, so they are boxed.
macro_rules! call {
    ($self:ident, $store:ident => $call:expr) => {
        match $self {
            Backend::Memory($store) => $call,
            Backend::Redis($store) => Box::pin(async { $call }).await,
            Backend::Postgres($store) => Box::pin(async { $call }).await,
        }
    };
}

impl Stores for Backend {
    forward_store!(Store for self via call; admit, admit_each, debit, peek, settle, lease, give_back, reset);
    forward_store!(Store for self via see; guarantee, background, local_shares, capabilities);

    fn admit_now(&self, ask: &Charges<'_>) -> Option<Result<Outcome, StoreError>> {
        let Self::Memory(store) = self else { return None };
        store.admit_now(ask)
    }

    fn decide_now(&self, charge: &Charge<'_>) -> Option<Result<Decided, StoreError>> {
        let Self::Memory(store) = self else { return None };
        store.decide_now(charge)
    }
}

impl SlotStore for Backend {
    forward_store!(SlotStore for self via call; acquire, heartbeat, release, occupancy);
    forward_store!(SlotStore for self via see; guarantee, background);
}

impl MembershipStore for Backend {
    forward_store!(MembershipStore for self via call; load, swap);
    forward_store!(MembershipStore for self via see; guarantee, background);
}

impl RegionStore for Backend {
    forward_store!(RegionStore for self via call; grant);
    forward_store!(RegionStore for self via see; guarantee, background);
}

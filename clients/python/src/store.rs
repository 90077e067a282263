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
    Charges, MembershipStore, MemoryStore, Outcome, RegionStore, SlotStore, Store as Stores,
};
use throttlekit::{BuildError, StoreError, forward_store};
use throttlekit_postgres::PostgresStore;
use throttlekit_redis::RedisStore;
use tokio::runtime::Handle;
use tokio::sync::OnceCell;
use tokio::time::timeout;

use crate::args::Span;
use crate::errors::{self, Failure};
use crate::pending::Pending;
use crate::process::{PerProcess, Process};

/// Longest time that connecting takes.
const CONNECT_MAX: Duration = Duration::from_secs(10);

const URL_EXPECTED: &str = "expected \"memory\", or an address that starts with redis://, rediss://, redis+cluster://, \
                            rediss+cluster://, postgres:// or postgresql://";

/// A store that several processes share: Redis, Valkey or PostgreSQL, by URL. `"memory"` counts in this process.
///
/// Connects with the first call, and again after a fork. `deadline` limits each call. `ca` is the certificate authority
/// of the servers, as PEM text or bytes; default: those of the system. On PostgreSQL, `schema` names the schema, and with
/// `migrate=True` connecting creates or upgrades it.
#[pyclass(frozen, module = "throttlekit")]
pub(crate) struct Store(pub(crate) Arc<StoreCell>);

#[pymethods]
impl Store {
    #[new]
    #[pyo3(signature = (url, *, deadline=None, ca=None, schema=None, migrate=false))]
    fn new(
        url: &str,
        deadline: Option<Span>,
        ca: Option<&Bound<'_, PyAny>>,
        schema: Option<String>,
        migrate: bool,
    ) -> PyResult<Self> {
        let ca = ca.map(pem).transpose()?;
        let address = Address::parse(url)
            .ok_or_else(|| PyValueError::new_err(format!("invalid store URL: {URL_EXPECTED}")))?;
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
            return Ok(Self(Store::new(url.to_str()?, None, None, None, false)?.0));
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

enum Address {
    Memory,
    Redis(String),
    RedisCluster(Vec<String>),
    Postgres(String),
}

impl Address {
    /// Parses a URL, in the format of the server's `--store`.
    fn parse(text: &str) -> Option<Self> {
        for scheme in ["redis", "rediss"] {
            if let Some(nodes) = text.strip_prefix(&format!("{scheme}+cluster://")) {
                let (user, nodes) = nodes.rsplit_once('@').unwrap_or(("", nodes));
                let at = if user.is_empty() { "" } else { "@" };
                let url = |node| format!("{scheme}://{user}{at}{node}");
                return Some(Self::RedisCluster(nodes.split(',').map(url).collect()));
            }
        }
        let starts = |schemes: &[&str]| schemes.iter().any(|scheme| text.starts_with(scheme));
        match text {
            "memory" => Some(Self::Memory),
            _ if starts(&["redis://", "rediss://"]) => Some(Self::Redis(text.into())),
            _ if starts(&["postgres://", "postgresql://"]) => Some(Self::Postgres(text.into())),
            _ => None,
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Redis(_) | Self::RedisCluster(_) => "redis",
            Self::Postgres(_) => "postgres",
        }
    }
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
    fn memory(runtime: Handle) -> Self {
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

/// A limiter over a store, built once in each process.
pub(crate) struct Shared<T> {
    store: Arc<StoreCell>,
    build: Build<T>,
    cell: PerProcess<OnceCell<T>>,
}

type Build<T> = Arc<dyn Fn(Backend) -> Result<T, BuildError> + Send + Sync>;

impl<T: Send + Sync + 'static> Shared<T> {
    /// Creates one. Builds it once over a store in memory, so that invalid settings are reported here.
    pub(crate) fn new(
        py: Python<'_>,
        store: Arc<StoreCell>,
        build: impl Fn(Backend) -> Result<T, BuildError> + Send + Sync + 'static,
    ) -> PyResult<Self> {
        let runtime = Process::get(py)?.handle();
        build(Backend::memory(runtime)).map_err(|error| errors::build(&error))?;
        Ok(Self { store, build: Arc::new(build), cell: PerProcess::new() })
    }

    /// Returns the limiter of this process, if it is built.
    #[inline]
    pub(crate) fn built(&self, py: Python<'_>) -> Option<Arc<OnceCell<T>>> {
        self.cell.built(py)
    }

    /// Returns the limiter of this process, connected or not.
    pub(crate) fn lazy(&self, py: Python<'_>) -> PyResult<Lazy<T>> {
        let cell = self.cell.get(py, || Ok(OnceCell::new()))?;
        Ok(Lazy { cell, link: self.store.link(py)?, build: self.build.clone() })
    }
}

/// The limiter of one process, connected or not.
pub(crate) struct Lazy<T> {
    cell: Arc<OnceCell<T>>,
    link: Link,
    build: Build<T>,
}

impl<T> Lazy<T> {
    /// Returns the limiter, and connects and builds first if needed.
    pub(crate) async fn get(&self) -> Result<&T, Failure> {
        let build = || async {
            let backend = self.link.backend().await.map_err(Failure::Store)?;
            (self.build)(backend.clone()).map_err(Failure::Build)
        };
        self.cell.get_or_try_init(build).await
    }
}

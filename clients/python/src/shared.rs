//! Limiters over a store or a server, built once in each process.

use std::sync::Arc;

use pyo3::prelude::*;
use throttlekit::BuildError;
use throttlekit_client::RemoteStore;
use tokio::sync::OnceCell;

use crate::client::Endpoint;
use crate::errors::{self, Failure};
use crate::process::{PerProcess, Process};
use crate::store::{Backend, Link, StoreCell};

/// A limiter over a store or a server, built once in each process.
pub(crate) struct Shared<T> {
    origin: Origin<T>,
    cell: PerProcess<OnceCell<T>>,
}

/// What a limiter is built over.
enum Origin<T> {
    Store(Arc<StoreCell>, Build<Backend, T>),
    Server(Arc<Endpoint>, Build<RemoteStore, T>),
}

type Build<S, T> = Arc<dyn Fn(S) -> Result<T, BuildError> + Send + Sync>;

impl<T: Send + Sync + 'static> Shared<T> {
    /// Creates one over a store. Builds it once over a store in memory, so that invalid settings are reported here.
    pub(crate) fn new(
        py: Python<'_>,
        store: Arc<StoreCell>,
        build: impl Fn(Backend) -> Result<T, BuildError> + Send + Sync + 'static,
    ) -> PyResult<Self> {
        let runtime = Process::get(py)?.handle();
        build(Backend::memory(runtime)).map_err(|error| errors::build(&error))?;
        Ok(Self { origin: Origin::Store(store, Arc::new(build)), cell: PerProcess::new() })
    }

    /// Creates one over the leases of a server.
    pub(crate) fn of_server(
        py: Python<'_>,
        server: Arc<Endpoint>,
        build: impl Fn(RemoteStore) -> Result<T, BuildError> + Send + Sync + 'static,
    ) -> PyResult<Self> {
        build(server.get(py)?.store()).map_err(|error| errors::build(&error))?;
        Ok(Self { origin: Origin::Server(server, Arc::new(build)), cell: PerProcess::new() })
    }

    /// Returns the limiter of this process, if it is built.
    #[inline]
    pub(crate) fn built(&self, py: Python<'_>) -> Option<Arc<OnceCell<T>>> {
        self.cell.built(py)
    }

    /// Returns the limiter of this process, connected or not.
    pub(crate) fn lazy(&self, py: Python<'_>) -> PyResult<Lazy<T>> {
        let cell = self.cell.get(py, || Ok(OnceCell::new()))?;
        let opening = match &self.origin {
            Origin::Store(store, build) => Opening::Store(store.link(py)?, build.clone()),
            Origin::Server(server, build) => Opening::Server(server.get(py)?.store(), build.clone()),
        };
        Ok(Lazy { cell, opening })
    }
}

/// The limiter of one process, connected or not.
pub(crate) struct Lazy<T> {
    cell: Arc<OnceCell<T>>,
    opening: Opening<T>,
}

enum Opening<T> {
    Store(Link, Build<Backend, T>),
    Server(RemoteStore, Build<RemoteStore, T>),
}

impl<T> Lazy<T> {
    /// Returns the limiter, and connects and builds first if needed.
    pub(crate) async fn get(&self) -> Result<&T, Failure> {
        self.cell.get_or_try_init(|| self.opening.build()).await
    }
}

impl<T> Opening<T> {
    async fn build(&self) -> Result<T, Failure> {
        match self {
            Self::Store(link, build) => {
                let backend = link.backend().await.map_err(Failure::Store)?;
                build(backend.clone()).map_err(Failure::Build)
            }
            Self::Server(server, build) => build(server.clone()).map_err(Failure::Build),
        }
    }
}

//! What counts a shared rate: a store, or a server that leases.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use std::sync::Arc;
use throttlekit::store::{Charges, Outcome, Store};
use throttlekit::{StoreError, forward_store};
use throttlekit_client::RemoteStore;

use crate::client::{Client, Endpoint};
use crate::store::{Backend, StoreArg};

/// What counts a shared rate, as an argument: a `Store` or its URL, or a `Client`.
pub(crate) enum RatesArg {
    Store(StoreArg),
    Server(Arc<Endpoint>),
}

impl<'py> FromPyObject<'_, 'py> for RatesArg {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(client) = value.cast::<Client>() {
            return Ok(Self::Server(client.get().0.clone()));
        }
        let expected = |py, error: PyErr| match error.is_instance_of::<PyTypeError>(py) {
            true => PyTypeError::new_err("invalid store: expected a Store, its URL, or a Client"),
            false => error,
        };
        value.extract().map(Self::Store).map_err(|error| expected(value.py(), error))
    }
}

/// What counts a shared rate.
#[derive(Clone)]
pub(crate) enum Rates {
    Store(Backend),
    Server(RemoteStore),
}

/// Queries whichever it is.
macro_rules! see {
    ($self:ident, $store:ident => $see:expr) => {
        match $self {
            Rates::Store($store) => $see,
            Rates::Server($store) => $see,
        }
    };
}

/// Runs a call on whichever it is. Futures of a server take kilobytes, so they are boxed.
macro_rules! call {
    ($self:ident, $store:ident => $call:expr) => {
        match $self {
            Rates::Store($store) => $call,
            Rates::Server($store) => Box::pin(async { $call }).await,
        }
    };
}

impl Store for Rates {
    forward_store!(Store for self via call; admit, admit_each, debit, peek, settle, lease, give_back, reset);
    forward_store!(Store for self via see; guarantee, background, local_shares, capabilities);

    fn admit_now(&self, ask: &Charges<'_>) -> Option<Result<Outcome, StoreError>> {
        see!(self, store => store.admit_now(ask))
    }
}

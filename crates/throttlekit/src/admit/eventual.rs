//! Results that are there at once, or after I/O.

use std::pin::Pin;
use std::task::{Context, Poll};

use throttlekit_core::Decision;

use super::{Admission, StoreError};

/// A boxed future.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The result of [`Admit::admit`](super::Admit::admit).
pub type Admitting = Eventual<'static, Result<Admission, StoreError>>;

/// The result of [`SharedPermit::debit`](super::SharedPermit::debit).
pub type Debiting<'a> = Eventual<'a, Result<Decision, StoreError>>;

/// A result that is there at once (no allocation) or after I/O (one allocation).
#[must_use = "futures do nothing unless polled"]
pub struct Eventual<'a, T>(Inner<'a, T>);

enum Inner<'a, T> {
    /// `None` once it was returned.
    Ready(Option<T>),
    Pending(BoxFuture<'a, T>),
}

impl<'a, T> Eventual<'a, T> {
    /// Creates one whose result is there.
    #[inline]
    pub fn ready(result: T) -> Self {
        Self(Inner::Ready(Some(result)))
    }

    /// Creates one whose result is that of a future.
    pub fn pending(future: impl Future<Output = T> + Send + 'a) -> Self {
        Self(Inner::Pending(Box::pin(future)))
    }

    /// Returns a reference to the result, if it is there.
    #[cfg(feature = "outbound")]
    #[inline]
    pub(crate) fn as_ready(&self) -> Option<&T> {
        if let Inner::Ready(result) = &self.0 { result.as_ref() } else { None }
    }

    /// Returns the result if it is there; otherwise the future again.
    #[inline]
    pub fn now_or_later(self) -> Result<T, Self> {
        match self.0 {
            Inner::Ready(Some(result)) => Ok(result),
            other => Err(Self(other)),
        }
    }
}

/// The result is never pinned.
impl<T> Unpin for Eventual<'_, T> {}

impl<T> Future for Eventual<'_, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match &mut self.0 {
            Inner::Ready(result) => {
                Poll::Ready(result.take().expect("a future is not polled again after it is done"))
            }
            Inner::Pending(future) => future.as_mut().poll(context),
        }
    }
}

debug_fields!(['a, T] Eventual<'a, T>, |it| ready = matches!(it.0, Inner::Ready(_)));

//! The prefetch of the processor; nothing without the feature `prefetch`.

#[cfg(feature = "prefetch")]
pub(super) use prefetch_index::prefetch_index;

#[cfg(not(feature = "prefetch"))]
#[inline]
pub(super) fn prefetch_index<T>(_: &[T], _: usize) {}

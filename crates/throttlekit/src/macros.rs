//! Macros for code that several types share.

/// Implements `Debug` for a type with parts that have none, or are too large to print: only the named values are shown.
///
/// ```text
/// debug_fields!([C: Clock] Permit<'_, C>, |it| meter = it.books.meter, slot = it.slot);
/// ```
#[doc(hidden)]
#[macro_export]
macro_rules! debug_fields {
    ([$($generics:tt)*] $name:ident $(<$($argument:tt),+>)? $(, |$it:ident| $($field:ident = $value:expr),+)?) => {
        impl<$($generics)*> std::fmt::Debug for $name $(<$($argument),+>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                $(let $it = self;)?
                f.debug_struct(stringify!($name))
                    $($(.field(stringify!($field), &$value))+)?
                    .finish_non_exhaustive()
            }
        }
    };
}

/// Implements `Clone` field by field, without the bounds on type parameters that a derived one has.
#[cfg(feature = "store")]
macro_rules! clone_fields {
    ([$($generics:tt)*] $name:ident <$($argument:tt),+>, $($field:ident),+) => {
        impl<$($generics)*> Clone for $name<$($argument),+> {
            fn clone(&self) -> Self {
                Self { $($field: self.$field.clone()),+ }
            }
        }
    };
}

/// Declares statistics that users read, and the counters that threads add to. `read` fills in the counters; the fields
/// under `beside` have their defaults there.
#[cfg(feature = "store")]
macro_rules! counters {
    (
        $(#[$of_stats:meta])*
        pub struct $stats:ident, counted by $counters:ident {
            $($(#[$of_counted:meta])* $counted:ident,)+
        }
        $(beside { $($(#[$of_field:meta])* $field:ident: $type:ty,)+ })?
    ) => {
        $(#[$of_stats])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $stats {
            $($(#[$of_counted])* pub $counted: u64,)+
            $($($(#[$of_field])* pub $field: $type,)+)?
        }

        #[derive(Debug, Default)]
        pub(crate) struct $counters {
            $(pub(crate) $counted: std::sync::atomic::AtomicU64,)+
        }

        impl $counters {
            pub(crate) fn read(&self) -> $stats {
                $stats {
                    $($counted: self.$counted.load(std::sync::atomic::Ordering::Relaxed),)+
                    $($($field: Default::default(),)+)?
                }
            }
        }
    };
}

/// Methods that end a permit, for a type that has `fn end(self, Ending, Option<Duration>)`.
macro_rules! endings {
    () => {
        /// Ends the work as a success. Its duration shows how loaded the backend is.
        #[inline]
        pub fn success(self) {
            self.end(throttlekit_core::concurrency::Ending::Success, None);
        }

        /// Ends the work as a success with this latency as the measure of load: the time to a first token, for example.
        #[inline]
        pub fn success_after(self, latency: std::time::Duration) {
            self.end(throttlekit_core::concurrency::Ending::Success, Some(latency));
        }

        /// Ends the work as dropped because the backend was overloaded: a timeout, a refusal, a crash.
        pub fn dropped(self) {
            self.end(throttlekit_core::concurrency::Ending::Dropped, None);
        }

        /// Ends the work without a sample of the backend: another axis denied, or the caller disconnected.
        #[inline]
        pub fn ignored(self) {
            self.end(throttlekit_core::concurrency::Ending::Ignored, None);
        }
    };
}

//! Wrappers of stores: a wrapper forwards what it does not change.

/// Implements methods of one of the store traits by those of another store.
///
/// ```text
/// impl Store for Wrapper {
///     forward_store!(Store for self => self.inner; admit, admit_each, debit, peek, settle, lease, background);
///     // and `give_back` and `reset` by hand
/// }
/// ```
///
/// Instead of `=> self.inner`, `via call` sends each call through a macro of the caller:
/// `call!(self, store => Store::admit(store, asks).await)`.
#[doc(hidden)]
#[macro_export]
macro_rules! forward_store {
    ($trait:ident for $this:ident => $store:expr; $($method:ident),+ $(,)?) => {
        $($crate::forward_store!(@$trait $method $this { $store });)+
    };
    ($trait:ident for $this:ident via $call:ident; $($method:ident),+ $(,)?) => {
        $($crate::forward_store!(@$trait $method $this $call);)+
    };

    (@Store admit $($to:tt)+) => {
        $crate::forward_store!(@async Store admit(asks: &[$crate::store::Charges<'_>])
            -> Result<Vec<$crate::store::Outcome>, $crate::store::StoreError>; $($to)+);
    };
    (@Store admit_each $($to:tt)+) => {
        $crate::forward_store!(@async Store admit_each(asks: &[$crate::store::Charges<'_>])
            -> Vec<Result<$crate::store::Outcome, $crate::store::StoreError>>; $($to)+);
    };
    (@Store debit $($to:tt)+) => {
        $crate::forward_store!(@async Store debit(debits: &[$crate::store::Debit<'_>])
            -> Vec<Result<$crate::store::Debited, $crate::store::StoreError>>; $($to)+);
    };
    (@Store peek $($to:tt)+) => {
        $crate::forward_store!(@async Store peek(charges: &[$crate::store::Charge<'_>])
            -> Result<$crate::store::Snapshot, $crate::store::StoreError>; $($to)+);
    };
    (@Store settle $($to:tt)+) => {
        $crate::forward_store!(@async Store settle(settlements: &[$crate::store::Settlement<'_>])
            -> Result<(), $crate::store::StoreError>; $($to)+);
    };
    (@Store lease $($to:tt)+) => {
        $crate::forward_store!(@async Store lease(asks: &[$crate::store::LeaseRequest<'_>])
            -> Vec<Result<$crate::store::Leased, $crate::store::StoreError>>; $($to)+);
    };
    (@Store give_back $($to:tt)+) => {
        $crate::forward_store!(@async Store give_back(backs: &[$crate::store::LeaseReturn<'_>])
            -> Result<(), $crate::store::StoreError>; $($to)+);
    };
    (@Store reset $($to:tt)+) => {
        $crate::forward_store!(@async Store reset(keys: &[&str])
            -> Result<(), $crate::store::StoreError>; $($to)+);
    };
    (@SlotStore acquire $($to:tt)+) => {
        $crate::forward_store!(@async SlotStore acquire(ask: &$crate::store::SlotRequest<'_>)
            -> Result<$crate::store::SlotAnswer, $crate::store::StoreError>; $($to)+);
    };
    (@SlotStore heartbeat $($to:tt)+) => {
        $crate::forward_store!(@async SlotStore heartbeat(
            leases: &[$crate::store::SlotLease<'_>], lives: std::time::Duration
        ) -> Vec<Result<$crate::store::HeartbeatOutcome, $crate::store::StoreError>>; $($to)+);
    };
    (@SlotStore release $($to:tt)+) => {
        $crate::forward_store!(@async SlotStore release(leases: &[$crate::store::SlotLease<'_>])
            -> Vec<Result<bool, $crate::store::StoreError>>; $($to)+);
    };
    (@SlotStore occupancy $($to:tt)+) => {
        $crate::forward_store!(@async SlotStore occupancy(keys: &[&str])
            -> Result<Vec<$crate::store::Occupancy>, $crate::store::StoreError>; $($to)+);
    };
    (@MembershipStore load $($to:tt)+) => {
        $crate::forward_store!(@async MembershipStore load(key: &str)
            -> Result<$crate::store::MembershipRecord, $crate::store::StoreError>; $($to)+);
    };
    (@MembershipStore swap $($to:tt)+) => {
        $crate::forward_store!(@async MembershipStore swap(
            key: &str, version: u64, bytes: &[u8], keeps: std::time::Duration
        ) -> Result<$crate::store::Swapped, $crate::store::StoreError>; $($to)+);
    };
    (@RegionStore grant $($to:tt)+) => {
        $crate::forward_store!(@async RegionStore grant(ask: &$crate::store::RegionRequest<'_>)
            -> Result<$crate::store::RegionGrant, $crate::store::StoreError>; $($to)+);
    };
    (@Store local_shares $($to:tt)+) => {
        $crate::forward_store!(@plain Store local_shares() -> Option<&$crate::store::LocalShares>; $($to)+);
    };
    (@Store capabilities $($to:tt)+) => {
        $crate::forward_store!(@plain Store capabilities() -> $crate::store::Capabilities; $($to)+);
    };
    (@$trait:ident guarantee $($to:tt)+) => {
        $crate::forward_store!(@plain $trait guarantee() -> $crate::Guarantee; $($to)+);
    };
    (@$trait:ident background $($to:tt)+) => {
        $crate::forward_store!(@plain $trait background() -> $crate::store::Background; $($to)+);
    };

    (@async $trait:ident $method:ident($($argument:ident: $type:ty),+) -> $answer:ty; $this:ident { $store:expr }) => {
        fn $method(&$this, $($argument: $type),+) -> impl std::future::Future<Output = $answer> + Send {
            $crate::store::$trait::$method(&$store, $($argument),+)
        }
    };
    (@async $trait:ident $method:ident($($argument:ident: $type:ty),+) -> $answer:ty; $this:ident $call:ident) => {
        async fn $method(&$this, $($argument: $type),+) -> $answer {
            $call!($this, store => $crate::store::$trait::$method(store, $($argument),+).await)
        }
    };
    (@plain $trait:ident $method:ident() -> $answer:ty; $this:ident { $store:expr }) => {
        fn $method(&$this) -> $answer {
            $crate::store::$trait::$method(&$store)
        }
    };
    (@plain $trait:ident $method:ident() -> $answer:ty; $this:ident $call:ident) => {
        fn $method(&$this) -> $answer {
            $call!($this, store => $crate::store::$trait::$method(store))
        }
    };
}

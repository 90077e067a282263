//! A store on a real engine, which one schedule reaches through a proxy of its own.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use throttlekit::internals::{Mutex, MutexGuard};
use throttlekit::store::{StoreClientStats, StoreError};

use super::kinds::{AnyStore, over};
use super::proxy::Proxy;
use super::schedule::{Schedule, Timing, Trouble};
use super::shared::{Bench, Boxed, Shared};

/// Connects a store to an address.
pub type Connect<S> = Box<dyn Fn(SocketAddr, Timing) -> Boxed<Result<S, StoreError>> + Send + Sync>;
/// Revokes a store's rights on its engine, and restores them.
pub type Rights = Box<dyn Fn(bool) + Send + Sync>;

/// The bench of one schedule: a proxy before an engine, and the one store that is connected through it.
pub struct ProxiedBench<S> {
    proxy: Proxy,
    connect: Connect<S>,
    rights: Option<Rights>,
    stats: fn(&S) -> StoreClientStats,
    connections_max: usize,
    store: Arc<Mutex<Weak<S>>>,
}

impl<S: AnyStore> ProxiedBench<S> {
    /// Creates a bench with a store that opens at most this many connections, and a function that reads the
    /// state of its breaker.
    pub fn new(
        proxy: Proxy,
        connect: Connect<S>,
        stats: fn(&S) -> StoreClientStats,
        connections_max: usize,
    ) -> Self {
        Self { proxy, connect, rights: None, stats, connections_max, store: Arc::default() }
    }

    /// Returns the same bench with rights that can be revoked.
    pub fn with_rights(self, rights: Rights) -> Self {
        Self { rights: Some(rights), ..self }
    }

    fn store(&self) -> MutexGuard<'_, Weak<S>> {
        self.store.lock()
    }
}

impl<S: AnyStore> Bench for ProxiedBench<S> {
    fn build(&self, schedule: Schedule) -> Boxed<Result<Arc<dyn Shared>, String>> {
        let connecting = (self.connect)(self.proxy.address(), schedule.timing);
        let kept = self.store.clone();
        Box::pin(async move {
            let store = Arc::new(connecting.await.map_err(|error| error.to_string())?);
            *kept.lock() = Arc::downgrade(&store);
            over(store, &schedule).await
        })
    }

    fn trouble(&self, trouble: Trouble) {
        match (trouble, &self.rights) {
            (Trouble::Unusable, Some(rights)) => rights(false),
            (trouble, _) => self.proxy.trouble(trouble),
        }
    }

    fn heal(&self) {
        self.rights.iter().for_each(|rights| rights(true));
        self.proxy.heal();
    }

    fn breaker_open(&self) -> Option<bool> {
        self.store().upgrade().map(|store| (self.stats)(&store).open)
    }

    fn connections(&self) -> (usize, usize) {
        (self.proxy.open(), self.connections_max)
    }

    fn is_held(&self) -> bool {
        self.store().strong_count() > 0
    }
}

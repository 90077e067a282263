//! Pauses after refusals, shared by the processes of one account.
//!
//! The pause of a key is a limiter on the store of the ceiling, with one unit for each microsecond and a burst of
//! [`CLAIM`]. A process that is refused takes the whole burst, and then the units of the pause, so that none is left before
//! its end. The others take one unit now and then, and are denied for the rest of it. The first pause counts until it is
//! over: refusals of several processes are one event, since only the first of them finds a whole burst. For the same
//! reason, a refusal within [`CLAIM`] after the end of a pause is not shared.

use std::time::Duration;

use throttlekit_core::concurrency::Ending;

use crate::Call;
use crate::admit::{Admit, BoxFuture, StoreError};

/// Time after which a process looks for a pause again: the first call after it takes one more round trip.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Name of the limiter, after that of the upstream.
#[cfg(feature = "store")]
const NAME: &str = "pause";
#[cfg(feature = "store")]
const UNITS_PER_SECOND: u64 = 1_000_000;
/// Units that begin a pause. They return in 100 ms, by which time the pause has been charged.
const CLAIM: u64 = 100_000;

/// The pauses of all keys. Empty if the limits are in this process.
#[derive(Default)]
pub(super) struct Pauses {
    limiter: Option<std::sync::Arc<dyn Admit>>,
    /// Runs work that nobody waits for.
    spawn: Option<Box<Spawn>>,
}

type Spawn = dyn Fn(BoxFuture<'static, ()>) + Send + Sync;

impl Pauses {
    /// Creates the limiter on a store.
    #[cfg(feature = "store")]
    pub(super) fn shared<S: crate::store::Store>(
        store: &std::sync::Arc<S>,
        name: &str,
    ) -> Result<Self, crate::BuildError> {
        let rate = crate::Rate::per_second(UNITS_PER_SECOND).burst(CLAIM);
        let policy = crate::SharedPolicy::builder(store.clone(), &format!("{name}:{NAME}")).tokens(rate);
        let (limiter, background) = (std::sync::Arc::new(policy.build()?), store.background());
        let spawn = move |work| drop(background.spawn(work));
        Ok(Self { limiter: Some(std::sync::Arc::new(limiter)), spawn: Some(Box::new(spawn)) })
    }

    pub(super) fn are_shared(&self) -> bool {
        self.limiter.is_some()
    }

    /// Returns the rest of the pause of a key. `None` also if the store does not respond.
    pub(super) async fn rest(&self, key: &[u8]) -> Option<Duration> {
        let admission = self.limiter.as_ref()?.admit(Call::by(key).cost(1)).await.ok()?;
        if let Some(mut permit) = admission.permit {
            permit.settle(1); // nothing to return
            permit.end(Ending::Success, None);
            return None;
        }
        admission.retry_after.wait().filter(|_| admission.outage.is_none())
    }

    /// Begins a pause of a key in the background, unless one is in progress. If the store does not respond, the pause
    /// stays that of this process.
    pub(super) fn share(&self, key: &[u8], delay: Duration) {
        let (Some(limiter), Some(spawn)) = (self.limiter.clone(), &self.spawn) else { return };
        let key: Box<[u8]> = key.into();
        spawn(Box::pin(async move {
            let _ = begin(&*limiter, &key, delay).await;
        }));
    }
}

async fn begin(limiter: &dyn Admit, key: &[u8], delay: Duration) -> Result<(), StoreError> {
    let mut admission = limiter.admit(Call::by(key).cost(CLAIM)).await?;
    if let Some(mut permit) = admission.permit.take() {
        let micros = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
        permit.settle(micros.saturating_add(CLAIM));
        permit.close(Ending::Success).await?;
    }
    Ok(())
}

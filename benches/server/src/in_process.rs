//! The server's engine without the wire: the cost without reading and writing messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use anyhow::{Result, anyhow, ensure};
use throttlekit_server::internals::engine::{Engine, EngineOptions, PolicyCall};
use throttlekit_server::policy;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::calls::{self, TURN};
use crate::child::{POLICIES, backend};
use crate::load::{CALLERS, Dice};

pub struct InProcess {
    engine: Engine,
    runtime: Runtime,
}

impl InProcess {
    pub fn start(store: &str) -> Result<Self> {
        let runtime = calls::runtime()?;
        let engine = runtime.block_on(async {
            let (file, _) = policy::load(POLICIES).map_err(|errors| anyhow!("{}", errors[0]))?;
            let options = EngineOptions::over(backend(store).await?);
            Engine::start(options, file).map_err(|error| anyhow!(error))
        })?;
        Ok(Self { engine, runtime })
    }

    /// Returns the decisions per second over a turn, by the number of callers that call the store directly.
    pub fn decisions_per_second(&self, policy: &'static str, keys: u64) -> Result<f64> {
        self.runtime.block_on(async {
            let (begun, done) = (Instant::now(), Arc::new(AtomicU64::new(0)));
            let mut callers = JoinSet::new();
            for n in 0..CALLERS {
                let (engine, done) = (self.engine.clone(), done.clone());
                callers.spawn(async move {
                    let (mut dice, mut count) = (Dice::new(n, keys), 0);
                    while begun.elapsed() < TURN {
                        let key = dice.key();
                        let ask = PolicyCall { policy, key: key.as_bytes(), others: &[], cost: 1 };
                        let answer = engine.check(ask).await?;
                        ensure!(answer.guarantee.label() == "exact", "not decided by the store: {answer:?}");
                        count += 1;
                        // A task that never waits would keep the others from being polled.
                        tokio::task::coop::consume_budget().await;
                    }
                    done.fetch_add(count, Relaxed);
                    anyhow::Ok(())
                });
            }
            while let Some(caller) = callers.join_next().await {
                caller??;
            }
            Ok(done.load(Relaxed) as f64 / begun.elapsed().as_secs_f64())
        })
    }
}

//! Clients of a server, each with a connection and a runtime of its own, so that they can be killed.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use throttlekit::internals::Mutex;
use throttlekit_proto::v1::rate_limiter_client::RateLimiterClient;
use throttlekit_proto::v1::{AdmitRequest, AdmitResponse, ReleaseRequest};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};
use tonic::Status;

use super::Bug;
use super::waiting::Served;
use crate::serving::channel;

/// More than a policy lets a call wait.
const WAIT_MS: i64 = 10_000;
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// The callers that got the slot, in order, and the failures of the others.
#[derive(Clone, Default)]
pub(super) struct Order(Arc<Mutex<(Vec<usize>, Vec<String>)>>);

impl Order {
    pub(super) fn admitted(&self) -> Vec<usize> {
        self.0.lock().0.clone()
    }

    pub(super) fn failures(&self) -> String {
        self.0.lock().1.join("; ")
    }

    /// Adds a caller that has the slot now.
    pub(super) fn add(&self, number: usize) {
        self.0.lock().0.push(number);
    }

    fn fail(&self, number: usize, why: &str) {
        self.0.lock().1.push(format!("caller {number}: {why}"));
    }

    /// Waits until the callers that got the slot are enough. Returns `false` if a caller failed, or it takes too long.
    pub(super) async fn until(&self, within: Duration, enough: impl Fn(&[usize]) -> bool) -> bool {
        let ended = async {
            loop {
                {
                    let order = self.0.lock();
                    if !order.1.is_empty() || enough(&order.0) {
                        return order.1.is_empty();
                    }
                }
                sleep(LOOK_EVERY).await;
            }
        };
        timeout(within, ended).await.unwrap_or(false)
    }
}

/// A client with one call that waits.
pub(super) struct Caller {
    runtime: Option<Runtime>,
}

impl Caller {
    /// Starts a client that waits for the slot, and releases it as soon as it has it.
    pub(super) fn start(
        served: &Served,
        policy: &str,
        number: usize,
        priority: u32,
        order: &Order,
        bug: Option<Bug>,
    ) -> Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let (address, order, request) = (served.grpc().to_owned(), order.clone(), waits(policy, priority));
        runtime.spawn(async move {
            if let Err(why) = call(&address, number, request, &order, bug).await {
                order.fail(number, &why);
            }
        });
        Ok(Self { runtime: Some(runtime) })
    }

    /// Ends it as `kill -9` ends a process: nothing more is sent, and its connection closes.
    pub(super) fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        // A runtime must not be dropped, and so waited for, where futures are polled.
        self.end();
    }
}

/// Returns a request that waits for the slot.
pub(super) fn waits(policy: &str, priority: u32) -> AdmitRequest {
    let (policy, key) = (policy.into(), "k".into());
    AdmitRequest { policy, key, wait_ms: WAIT_MS, priority, ..AdmitRequest::default() }
}

async fn call(
    address: &str,
    number: usize,
    request: AdmitRequest,
    order: &Order,
    bug: Option<Bug>,
) -> Result<(), String> {
    let said = |status: Status| format!("{status:?}");
    let channel = channel(address).map_err(|error| error.to_string())?;
    let mut client = RateLimiterClient::new(channel);
    let admitted = client.admit(request.clone()).await.map_err(said)?.into_inner();
    if !is_allowed(&admitted) {
        return Err("denied".into());
    }
    order.add(number);
    if bug == Some(Bug::SlotKept) {
        return Ok(());
    }
    let release = |lease_id| ReleaseRequest { lease_id, ..ReleaseRequest::default() };
    client.release(release(admitted.lease_id)).await.map_err(said)?;
    if bug == Some(Bug::ChargedTwice) {
        let again = client.admit(request).await.map_err(said)?.into_inner();
        client.release(release(again.lease_id)).await.map_err(said)?;
    }
    Ok(())
}

pub(super) fn is_allowed(response: &AdmitResponse) -> bool {
    response.decision.as_ref().is_some_and(|decision| decision.allowed)
}

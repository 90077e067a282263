//! Node processes over one server, faults of and between them, and a judge that trusts no node's clock.
//!
//! A test that calls [`run`] runs itself again, once for each node; there [`run`] does not return. Each node
//! logs every admission with the machine's time before and after the call, one write each. So `kill -9` loses
//! at most one admission for each caller of the node, which only makes a count smaller.

mod broken;
mod demand;
mod fault_injector;
mod judge;
mod log;
mod member;
mod node;
mod plan;

use std::time::Duration;

use throttlekit_conformance::Dice;

use crate::common::policy;
use crate::rig::{Proxy, Server, now};
pub(crate) use fault_injector::{Fault, Struck};
pub(crate) use judge::{Rolling, Windows};
pub(crate) use log::Admission;
pub(crate) use plan::{Broken, NodeClock, NodePlan, Plan, Rule};

use fault_injector::FaultInjector;
use member::Fleet;

/// The interval at which logs are checked while nodes with a seeded bug run.
const LOOK_EVERY: Duration = Duration::from_millis(300);
/// The seed of the faults.
const SEED: u64 = 1;

/// The results of a run.
pub(crate) struct Ran {
    pub(crate) admissions: Vec<Admission>,
    /// The time at which every node had started and the time at which the first was ended, in
    /// microseconds: the interval between is complete.
    pub(crate) whole: (u64, u64),
    pub(crate) struck: Struck,
    /// Replies that were lost, and requests that were executed twice.
    pub(crate) lost: u64,
    pub(crate) repeated: u64,
}

/// Runs the plan for this time, or until `enough` returns true.
pub(crate) async fn run(plan: &Plan, length: Duration, mut enough: impl FnMut(&[Admission]) -> bool) -> Ran {
    if let Some(post) = member::post() {
        node::serve(plan, &post).await;
    }
    let server = Server::start(&[]).await;
    let mut fleet = Fleet::start(plan, &server, &policy(plan.test)).await;
    let mut injector = FaultInjector::new(plan, Dice::new(SEED));
    let begun = log::micros();
    let (start, mut looked) = (now(), now());
    while now().since(start) < length {
        injector.step(&mut fleet, &server).await;
        if now().since(looked) > LOOK_EVERY {
            looked = now();
            if enough(&fleet.admissions()) {
                break;
            }
        }
    }
    let whole = (begun, log::micros());
    injector.clear(&fleet);
    fleet.end();
    let sum = |of: fn(&Proxy) -> u64| fleet.members.iter().map(|member| of(&member.proxy)).sum();
    Ran {
        whole,
        struck: injector.struck,
        lost: sum(Proxy::lost),
        repeated: sum(Proxy::repeated),
        admissions: fleet.admissions(),
    }
}

/// Returns the duration of a fault schedule: as configured, or the default.
pub(crate) fn schedule_length(unless_told: u64) -> Duration {
    let told = std::env::var("THROTTLEKIT_FLEET_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(told.unwrap_or(unless_told))
}

/// Prints the results in words that `cargo xtask verify fleet` reads.
pub(crate) fn tell(name: &str, facts: &[(&str, u64)]) {
    let words: Vec<_> = facts.iter().map(|(what, value)| format!("{what}={value}")).collect();
    println!("fleet: {name} {}", words.join(" "));
}

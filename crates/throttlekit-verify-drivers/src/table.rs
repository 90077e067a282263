//! Every verification.

use super::runner::Unoptimized::{Always, Cases, Never, Small};
use super::runner::Verification;
use super::{
    abuse, admission, budget, budget_use, exhaustion, failover, fair_regions, fuzz, inference, invariants,
    isolation, key_capacity, label_truth, learn, lease_scale, lease_sim, leasing_nodes, metering, model,
    outbound, price, reload, sketch, slots, stores,
};

/// Exploring the other models is a part of `slots`.
const LEASE_MODEL: Verification = {
    let [lease, ..] = model::ALL;
    lease
};

pub(super) const ALL: [Verification; 30] = [
    Verification {
        name: "rate",
        about: "every guarantee of the rate axis over N cases (default 1000000)",
        takes: &["--cases=N", "--seed=S"],
        unoptimized: Cases(20_000),
        run: invariants::rate,
    },
    Verification {
        name: "fair",
        about: "every guarantee of sharing by weight over N cases (default 1000000)",
        takes: &["--cases=N", "--seed=S"],
        unoptimized: Cases(20_000),
        run: invariants::fair,
    },
    Verification {
        name: "turn-order",
        about: "the order of callers that wait for a limiter, over N schedules (default 1000000) for each part",
        takes: &["--cases=N", "--seed=S"],
        unoptimized: Cases(2_000),
        run: invariants::turn_order,
    },
    Verification {
        name: "learn",
        about: "the cost of the learners beside the best in hindsight, and streams with any reservation",
        takes: &[],
        unoptimized: Never,
        run: learn::run,
    },
    Verification {
        name: "learned-ceiling",
        about: "N cases (default 1000000) of any responses to calls whose limits are learned from them",
        takes: &["--cases=N", "--seed=S"],
        unoptimized: Cases(20_000),
        run: outbound::run,
    },
    Verification {
        name: "metering",
        about: "three ways to meter tokens beside each other",
        takes: &[],
        unoptimized: Never,
        run: metering::run,
    },
    Verification {
        name: "budget",
        about: "how far a token budget is exceeded by clusters on every shared store",
        takes: &[],
        unoptimized: Never,
        run: budget::run,
    },
    Verification {
        name: "budget-use",
        about: "how much of a token budget is used in forty minutes (small: three), in memory and on Redis",
        takes: &["--small"],
        unoptimized: Small,
        run: budget_use::run,
    },
    Verification {
        name: "sketch",
        about: "N units (default 1000000000) of floods against limits in a sketch, beside exact counts",
        takes: &["--cases|--units=N"],
        unoptimized: Never,
        run: sketch::run,
    },
    Verification {
        name: "key-capacity",
        about: "N keys (default 10000000) against memory budgets: early denials, memory, and the time of a check",
        takes: &["--small", "--cases|--keys=N", "--case=JSON"],
        unoptimized: Small,
        run: key_capacity::run,
    },
    Verification {
        name: "bid-price",
        about: "what pricing earns beside the limits alone, and that its duals are optimal",
        takes: &[],
        unoptimized: Never,
        run: price::run,
    },
    Verification {
        name: "inference",
        about: "inferred limits with steady and with long-tailed latencies: goodput beside the best fixed limit",
        takes: &["--small", "PART…"],
        unoptimized: Small,
        run: inference::run,
    },
    Verification {
        name: "slots",
        about: "inferred limits, slots that are held, and one limit for a cluster",
        takes: &["--small", "PART…"],
        unoptimized: Small,
        run: slots::run,
    },
    Verification {
        name: "admission",
        about: "one call over all axes: every mix of axes and stores, among faults, and a gateway under load",
        takes: &["--small", "PART…"],
        unoptimized: Small,
        run: admission::run,
    },
    Verification {
        name: "stores",
        about: "N timelines (default 100000) on every shared store, memory among them",
        takes: &["--cases|--timelines=N", "--seed|--from=S", "--only=NAME,NAME"],
        unoptimized: Cases(5_000),
        run: stores::run,
    },
    Verification {
        name: "reload-room",
        about: "N timelines (default 200000) with changes of limits in memory, one in fifty of them on every store",
        takes: &["--cases=N", "--only=NAME,NAME"],
        unoptimized: Cases(5_000),
        run: reload::run,
    },
    Verification {
        name: "fair-regions",
        about: "what tenants of several regions get of one budget, over N cases (default 100000) and N timelines of the pool (default 20000)",
        takes: &["--cases|--worlds=N", "--timelines=N"],
        unoptimized: Cases(2_000),
        run: fair_regions::run,
    },
    Verification {
        name: "fleet",
        about: "clusters of processes over a Redis of their own, N seconds of faults (default 120)",
        takes: &["--cases|--seconds=N"],
        unoptimized: Always,
        run: leasing_nodes::run,
    },
    Verification {
        name: "failover",
        about: "N rounds (default 100) in which a Redis primary fails, for each mode",
        takes: &["--cases|--rounds=N"],
        unoptimized: Always,
        run: failover::run,
    },
    Verification {
        name: "isolated-callers",
        about: "N schedules (default 10600) of shared types over several runtimes of which one misbehaves",
        takes: &["--small", "--cases=N", "--no-server", "--replay=ENGINE:SEED"],
        unoptimized: Cases(2_000),
        run: isolation::run,
    },
    Verification {
        name: "label-truth",
        about: "N rounds (default 100) in which an engine loses charges: no decision beyond the limit is labelled exact",
        takes: &["--small", "--cases|--rounds=N", "--engine=postgres|redis"],
        unoptimized: Always,
        run: label_truth::run,
    },
    Verification {
        name: "exhaustion",
        about: "a PostgreSQL server whose commits hang for N seconds (default 60): connections and recovery",
        takes: &["--small", "--cases|--seconds=N"],
        unoptimized: Always,
        run: exhaustion::run,
    },
    Verification {
        name: "lease-sim",
        about: "N simulated clusters among faults (default 10000), or one of them again with its trace",
        takes: &["--cases|--seeds=N", "--seed=S", "--replay=SEED"],
        unoptimized: Cases(200),
        run: lease_sim::run,
    },
    Verification {
        name: "lease-scale",
        about: "what leasing costs and strands from eight nodes to ten thousand",
        takes: &["--picture=FILE"],
        unoptimized: Never,
        run: lease_scale::run,
    },
    LEASE_MODEL,
    Verification {
        name: "abuse",
        about: "the effect of attacks on the server on its other clients, and how much it grows",
        takes: &["--small", "ATTACK…"],
        unoptimized: Always,
        run: abuse::run,
    },
    Verification {
        name: "envoy-hostile",
        about: "N sets of random headers (default 100000) through Envoy, of a client whose limit is exhausted",
        takes: &["--cases|--requests=N"],
        unoptimized: Always,
        run: abuse::run_envoy,
    },
    Verification {
        name: "fair-service",
        about: "what honest principals get while others attack by N random mixes (default 200), in memory and on Redis",
        takes: &["--cases|--mixes=N", "--seed=S"],
        unoptimized: Always,
        run: abuse::run_fair,
    },
    Verification {
        name: "fuzz",
        about: "ten million inputs (small: a hundred thousand) for each parser: policy, wire, descriptors, sketch, responses",
        takes: &["--small", "TARGET…"],
        unoptimized: Never,
        run: fuzz::run,
    },
    Verification {
        name: "wire-fuzz",
        about: "N mutated requests and frame sequences (default 1000000) to every listener: no crash, hang or leak",
        takes: &["--cases|--inputs=N", "--seed=S", "--from=SESSION"],
        unoptimized: Always,
        run: abuse::run_wire_fuzz,
    },
];

//! The pages of the book and the README with Rust blocks: `cargo test --doc -p book` compiles and runs them.
//!
//! `cargo xtask book` fails if a page with Rust blocks is missing here.

macro_rules! pages {
    ($($name:ident: $path:literal),* $(,)?) => {
        $(
            #[cfg(doctest)]
            #[doc = include_str!($path)]
            pub struct $name;
        )*
    };
}

pages! {
    Readme: "../../../README.md",
    ConceptsAlgorithms: "../../../docs/concepts/algorithms.md",
    ConceptsAxes: "../../../docs/concepts/axes.md",
    ConceptsClocks: "../../../docs/concepts/clocks.md",
    ConceptsLeases: "../../../docs/concepts/leases.md",
    GuidesConcurrency: "../../../docs/guides/concurrency.md",
    GuidesFairness: "../../../docs/guides/fairness.md",
    GuidesLlmTokens: "../../../docs/guides/llm-tokens.md",
    GuidesMigrate: "../../../docs/guides/migrate.md",
    GuidesMoney: "../../../docs/guides/money.md",
    GuidesOutages: "../../../docs/guides/outages.md",
    GuidesOutbound: "../../../docs/guides/outbound.md",
    GuidesOverload: "../../../docs/guides/overload.md",
    GuidesPolicies: "../../../docs/guides/policies.md",
    GuidesPricing: "../../../docs/guides/pricing.md",
    GuidesProtectAnApi: "../../../docs/guides/protect-an-api.md",
    GuidesRegions: "../../../docs/guides/regions.md",
    GuidesReplicas: "../../../docs/guides/replicas.md",
    GuidesReservations: "../../../docs/guides/reservations.md",
    GuidesRustClient: "../../../docs/guides/rust-client.md",
    GuidesTelemetry: "../../../docs/guides/telemetry.md",
    OperatePostgres: "../../../docs/operate/postgres.md",
    OperateRedis: "../../../docs/operate/redis.md",
    StartRust: "../../../docs/start/rust.md",
}

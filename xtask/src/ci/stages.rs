//! The stages of CI. A stage is one command, so that it can be rerun without this program.

/// A command with a name, and what must hold when it runs.
pub(super) struct Stage {
    pub(super) name: &'static str,
    pub(super) env: &'static [(&'static str, &'static str)],
    pub(super) command: &'static str,
    /// Real engines run beside it.
    pub(super) engines: bool,
    /// It needs a program or a toolchain that most machines do not have, or is too slow for a plain run.
    pub(super) by_name_only: bool,
}

impl Stage {
    const fn new(name: &'static str, command: &'static str) -> Self {
        Self { name, env: &[], command, engines: false, by_name_only: false }
    }

    const fn env(self, env: &'static [(&'static str, &'static str)]) -> Self {
        Self { env, ..self }
    }

    const fn engines(self) -> Self {
        Self { engines: true, ..self }
    }

    const fn by_name_only(self) -> Self {
        Self { by_name_only: true, ..self }
    }
}

/// The feature `full` has everything but a second crypto provider, whose C code takes minutes to compile; `features` and
/// `deny` cover that one.
pub(super) const STAGES: &[Stage] = &[
    Stage::new("fmt", "cargo fmt --all --check"),
    // These compile nothing of the workspace.
    Stage::new("vectors", "cargo xtask vectors --check"),
    Stage::new("proto", "cargo xtask proto --check"),
    Stage::new("cycles", "cargo xtask cycles"),
    Stage::new("locks", "cargo xtask locks"),
    Stage::new("links", "cargo xtask links"),
    Stage::new("manifests", "cargo xtask manifests"),
    Stage::new("prose", "cargo xtask prose"),
    Stage::new("clippy", "cargo clippy --workspace --all-targets --features full -- -D warnings"),
    // No default feature, and the parts that need no store.
    Stage::new("bare", "cargo clippy -p throttlekit --no-default-features -- -D warnings"),
    Stage::new("bare-http", "cargo clippy -p throttlekit --no-default-features --features axum -- -D warnings"),
    // Optimization finds cycles between constants and async closures that a debug build does not (E0391).
    Stage::new("optimized", "cargo check --profile proof -p throttlekit-cli --features full"),
    Stage::new("test", "cargo nextest run --workspace --features full --no-fail-fast").engines(),
    Stage::new("doctest", "cargo test --doc --workspace --features full").engines(),
    // A target folder of its own: other flags would rebuild everything else.
    Stage::new("loom", "cargo test -p throttlekit --features store --release --lib loom_")
        .env(&[("RUSTFLAGS", "--cfg loom"), ("CARGO_TARGET_DIR", "target/loom")]),
    Stage::new("docs", "cargo doc --no-deps --workspace --features full")
        .env(&[("RUSTDOCFLAGS", "-Dwarnings")]),
    Stage::new("reference", "cargo xtask reference --check"),
    Stage::new("book", "cargo xtask book"),
    Stage::new("api", "cargo xtask api"),
    Stage::new("deploy", "cargo xtask deploy --check"),
    Stage::new("clone", "cargo xtask clone"),
    Stage::new("publish", "cargo xtask publish"),
    // A workspace of its own, which the stages above do not see.
    Stage::new("python-fmt", "cargo fmt --manifest-path clients/python/Cargo.toml --check"),
    Stage::new(
        "python-clippy",
        "cargo clippy --manifest-path clients/python/Cargo.toml --all-targets --locked -- -D warnings",
    )
    // Shares what the workspace compiled of its dependencies.
    .env(&[("CARGO_TARGET_DIR", "target")]),
    Stage::new("python", "cargo xtask python test").engines(),
    Stage::new("verify-rate", "cargo xtask verify rate --cases 2000"),
    Stage::new("verify-turn-order", "cargo xtask verify turn-order --cases 2000 schedules"),
    Stage::new("verify-waiting", "cargo xtask verify turn-order --small server"),
    Stage::new("model-lease", "cargo xtask model lease --small"),
    Stage::new("verify-stores", "cargo xtask verify stores --timelines 500").engines(),
    Stage::new("verify-inference", "cargo xtask verify inference --small tails"),
    Stage::new("verify-key-capacity", "cargo xtask verify key-capacity --small"),
    Stage::new("verify-reload-room", "cargo xtask verify reload-room --cases 1000").engines(),
    Stage::new("verify-slots", "cargo xtask verify slots --small inference held models").engines(),
    Stage::new("verify-admission", "cargo xtask verify admission --small matrix fused algebra price drill")
        .engines(),
    Stage::new("verify-exhaustion", "cargo xtask verify exhaustion --small"),
    Stage::new("verify-label-truth", "cargo xtask verify label-truth --small --engine redis"),
    Stage::new("verify-budget-tree", "cargo xtask verify budget-tree --cases 1500 --engine-cases 30").engines(),
    Stage::new("verify-budget-use", "cargo xtask verify budget-use --small").engines(),
    Stage::new("verify-learned-ceiling", "cargo xtask verify learned-ceiling --cases 20000"),
    Stage::new("verify-lease-sim", "cargo xtask verify lease-sim --seeds 200"),
    // The library on systems that have no engines.
    Stage::new(
        "portable",
        "cargo nextest run -p throttlekit-core -p throttlekit -p throttlekit-proto -p throttlekit-telemetry \
         --features full --no-fail-fast",
    )
    .by_name_only(),
    // The oldest compiler that library crates support.
    Stage::new(
        "msrv",
        "cargo +1.88.0 check --features full -p throttlekit-core -p throttlekit -p throttlekit-redis \
         -p throttlekit-postgres -p throttlekit-telemetry -p throttlekit-proto -p throttlekit-client \
         -p throttlekit-conformance",
    )
    .env(&[("CARGO_TARGET_DIR", "target/msrv")])
    .by_name_only(),
    Stage::new("features", "cargo hack check --workspace --each-feature --no-dev-deps").by_name_only(),
    // Two crypto providers are linked, and no feature chooses one.
    Stage::new(
        "tls-providers",
        "cargo nextest run -p throttlekit-redis --lib --features tls,rustls/ring,rustls/aws_lc_rs crypto_providers",
    )
    .by_name_only(),
    Stage::new("deny", "cargo deny --workspace --all-features check").by_name_only(),
    Stage::new("semver", "cargo xtask semver").by_name_only(),
];

//! One scenario of gateways and streams, from a seed.

use std::sync::Arc;
use std::time::Duration;

use throttlekit::Limit;
use throttlekit::budget::{Reservation, ReservationOptions, Reserve, TokenBudget, TokenStream};
use throttlekit::clock::{Clock, ManualClock};
use throttlekit::leasing::Margin;
use throttlekit::rate::Timestamp;
use throttlekit::store::{Charge, KeySpace, MemoryStore, Store};
use throttlekit_core::rate::Rule;
use throttlekit_core::rate::shared::ScriptEncoding;
use tokio::runtime::Handle;

use super::{StreamBug, Wire};
use throttlekit_conformance::Dice;

const POLICY: &str = "tokens";
const WINDOW: Duration = Duration::from_secs(60);
const SILENCE: Duration = Duration::from_secs(10);
const STEPS: u64 = 150;
const KEYS: [&str; 2] = ["acme", "zeta"];
const STREAMS_MAX: usize = 24;
/// The number of yields after a step, so that background work is done.
const TURNS: usize = 12;

struct Scenario {
    dice: Dice,
    clock: ManualClock,
    store: Arc<MemoryStore<ManualClock>>,
    wire: Wire,
    form: ScriptEncoding,
    budget: u64,
    chunk_max: u64,
    gateways: Vec<TokenBudget<Wire, ManualClock>>,
    streams: Vec<(usize, TokenStream<Wire, ManualClock>)>,
    /// For each key, in the current window.
    produced: [u64; KEYS.len()],
    stranded: [u64; KEYS.len()],
}

/// Runs the scenario of this seed. Returns the step at which it broke the invariant, if it did.
pub fn check_scenario(seed: u64, bug: Option<StreamBug>) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime of one thread").block_on(async {
        let mut scenario = Scenario::new(seed, bug);
        for step in 0..STEPS {
            let what = scenario.step().await;
            scenario
                .judge()
                .await
                .map_err(|counterexample| format!("step {step}, {what}: {counterexample}"))?;
        }
        scenario.end().await.map_err(|counterexample| format!("at the end: {counterexample}"))
    })
}

impl Scenario {
    fn new(seed: u64, bug: Option<StreamBug>) -> Self {
        let mut dice = Dice::new(seed);
        let clock = ManualClock::at(Timestamp::from_millis(1_700_000_000_000));
        let store = Arc::new(MemoryStore::with_clock(clock.clone()).runtime(Handle::current()));
        let budget = dice.pick(&[1, 7, 100, 1_000, 20_000]);
        let limit = Limit::token_budget(budget, WINDOW).expect("a valid budget");
        let form = ScriptEncoding::of(&limit).expect("a budget can be shared");
        let wire = Wire::new(store.clone(), form, dice.roll(), bug);
        let gateway = |reserve| {
            TokenBudget::builder(wire.clone(), POLICY, limit)
                .clock(clock.clone())
                .margin(Margin::NONE)
                .reserve(reserve)
                .idle_timeout(SILENCE)
                .streams_max(STREAMS_MAX)
                .build()
                .expect("a valid budget")
        };
        let gateways = (0..dice.between(1, 4)).map(|_| gateway(any_reserve(&mut dice, budget))).collect();
        let chunk_max = dice.pick(&[1, 2, 16, 200]);
        let (streams, produced, stranded) = (Vec::new(), [0; KEYS.len()], [0; KEYS.len()]);
        Self { dice, clock, store, wire, form, budget, chunk_max, gateways, streams, produced, stranded }
    }

    async fn step(&mut self) -> &'static str {
        match self.dice.below(16) {
            0..=3 => self.open().await,
            4..=10 => self.debit().await,
            11 => self.end_one(true).await,
            12 => self.end_one(false).await,
            13 => self.heartbeat(),
            _ => self.wait(),
        }
    }

    async fn open(&mut self) -> &'static str {
        let gateway = self.dice.below(self.gateways.len() as u64) as usize;
        let key = self.dice.below(KEYS.len() as u64) as usize;
        let hint = Some(self.dice.any_size(u64::MAX)).filter(|hint| hint % 3 > 0);
        let opened = self.gateways[gateway].open(KEYS[key], hint).await.expect("outages are stood in for");
        self.streams.extend(opened.stream.map(|stream| (key, stream)));
        "open"
    }

    async fn debit(&mut self) -> &'static str {
        let tokens = self.dice.between(1, self.chunk_max);
        let Some(index) = self.any_stream() else { return "nothing" };
        let (key, stream) = &mut self.streams[index];
        let answer = stream.debit(tokens).await.expect("outages are stood in for");
        if answer.decision.allowed {
            self.produced[*key] += tokens;
        }
        "debit"
    }

    async fn end_one(&mut self, settles: bool) -> &'static str {
        let Some(index) = self.any_stream() else { return "nothing" };
        let (_, stream) = self.streams.swap_remove(index);
        if settles {
            stream.settle().await.expect("returns arrive");
            return "settle";
        }
        "drop"
    }

    fn heartbeat(&mut self) -> &'static str {
        if let Some(index) = self.any_stream() {
            self.streams[index].1.heartbeat();
        }
        "heartbeat"
    }

    /// Waits for a while, or to just before or at the end of the window.
    fn wait(&mut self) -> &'static str {
        let (window, micro) = (WINDOW.as_micros() as u64, 1);
        let now = self.clock.now().as_micros();
        let to_end = window - now % window;
        let by = match self.dice.below(4) {
            0 => to_end,
            1 => to_end - micro,
            _ => self.dice.below(15_000_000),
        };
        if (now + by) / window != now / window {
            (self.produced, self.stranded) = Default::default();
        }
        self.clock.advance(Duration::from_micros(by));
        "wait"
    }

    fn any_stream(&mut self) -> Option<usize> {
        let open = self.streams.len() as u64;
        (open > 0).then(|| self.dice.below(open) as usize)
    }

    /// Ends all streams. After that only produced tokens are charged.
    async fn end(&mut self) -> Result<(), String> {
        self.streams.clear();
        self.judge().await
    }

    async fn judge(&mut self) -> Result<(), String> {
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
        let space = KeySpace::new("tk", POLICY, "", &self.form);
        let names = KEYS.map(|key| space.key(key.as_bytes(), key.as_bytes()));
        for (name, tokens) in self.wire.take_stranded() {
            let key = names.iter().position(|known| *known == name).expect("a key of this scenario");
            self.stranded[key] += tokens;
        }
        for (key, name) in names.iter().enumerate() {
            let charged = self.charged(name).await;
            let of_key = self.streams.iter().filter(|(of, _)| *of == key);
            let set_aside: u64 = of_key.map(|(_, stream)| stream.reserved()).sum();
            let (produced, stranded) = (self.produced[key], self.stranded[key]);
            let told = || {
                format!(
                    "{charged} charged to {name} for {produced} produced, {set_aside} set aside, {stranded} stranded"
                )
            };
            let most = self.budget + self.chunk_max - 1;
            if charged != produced + set_aside + stranded || charged > most {
                return Err(format!("{}; at most {most} may be", told()));
            }
        }
        Ok(())
    }

    /// Returns the charges of a key in the current window, including those beyond the budget.
    async fn charged(&self, name: &str) -> u64 {
        let charge = Charge { key: name, form: &self.form, cost: 0 };
        let sight = self.store.peek(&[charge]).await.expect("memory answers");
        let wide = Limit::fixed_window(1 << 50, WINDOW).expect("a valid limit");
        (1 << 50) - wide.decide(&sight.states[0], 0, sight.now).remaining
    }
}

fn any_reserve(dice: &mut Dice, budget: u64) -> Reserve {
    let options = ReservationOptions { max: dice.between(0, 2 * budget), ..ReservationOptions::default() };
    let learner = || Reservation::new(options).expect("valid options");
    match dice.below(6) {
        0 => Reserve::Fixed(0),
        1 => Reserve::Fixed(u64::MAX),
        2 => Reserve::Fixed(dice.any_size(u64::MAX)),
        3 => Reserve::Fixed(dice.between(1, budget)),
        4 => Reserve::Learned(learner()),
        _ => Reserve::PerKey { fresh: learner(), keys_max: 1 },
    }
}

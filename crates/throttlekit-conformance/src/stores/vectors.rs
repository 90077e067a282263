//! The golden suites and our own vectors, played to a store through a limiter.
//!
//! A store counts whole microseconds of civil time, so traces are adapted:
//!
//! * Traces near the epoch begin days later, by whole windows: every grid lies as it did, and each reset is later by as
//!   much. Calendar traces begin in this century and stay.
//! * Instants between two microseconds are truncated to the one before, as a store does. From there on the stored
//!   decisions no longer apply, and those of the rules at the same instants are used.
//! * As in scenarios, both drop idle keys before a step back; from there on the decisions of the rules are used as
//!   well.

use std::sync::Arc;
use std::time::Duration;

use throttlekit::clock::ManualClock;
use throttlekit::rate::Timestamp;
use throttlekit::store::{Charge, Charges, KeySpace, Store, StoreError};
use throttlekit::{Call, Decision, SharedLimiter};
use throttlekit_core::rate::shared::ScriptEncoding;
use throttlekit_core::rate::{Cadence, Need};

use super::examine::policy_name;
use super::reference::CoreStates;
use super::report::StoreReport;
use super::scenario::{EARLIEST, MICRO, latest};
use crate::difference::Difference;
use crate::golden::{Golden, GoldenDecision};
use crate::text::nanos;
use crate::trace::print_answer;
use crate::{Spec, Trace, golden, vectors};

/// Minimum shift of traces that begin earlier.
const AWAY_FROM_ZERO: u64 = 7 * EARLIEST.as_nanos();

/// Runs the golden suites and our own vectors against a store: guarantee `same-everywhere`. Stops at the first
/// difference.
///
/// Those that no shared store can play are listed in the report with the reason, never dropped silently.
pub async fn examine_vectors<S, M, F>(make: M) -> Result<StoreReport, Difference>
where
    S: Store,
    M: Fn(ManualClock) -> F,
    F: Future<Output = Result<S, StoreError>>,
{
    let clock = ManualClock::default();
    let told = |error: StoreError| format!("no store to play on: {error}");
    let store = Arc::new(make(clock.clone()).await.map_err(told)?);
    let mut report = StoreReport::default();
    for suite in golden::suites() {
        let mut table = Table::new(&suite.name, &suite.spec, &store, &clock)
            .map_err(|why| format!("{}: every golden suite has a shared form, but {why}", suite.name))?;
        table.play_golden(&suite).await.map_err(|difference| format!("{}: {difference}", suite.name))?;
        report.add(played(suite.asks.len()));
    }
    for (name, trace) in vectors::read().map_err(|error| error.to_string())? {
        let mut table = match playable(&name, &trace, &store, &clock) {
            Ok(table) => table,
            Err(why) => {
                report.left_out.push(format!("{name}: {why}"));
                continue;
            }
        };
        table.play(&trace).await.map_err(|difference| format!("{name}: {difference}"))?;
        report.add(played(trace.lines.len()));
    }
    Ok(report)
}

fn played(answers: usize) -> StoreReport {
    StoreReport { traces: 1, answers: answers as u64, ..StoreReport::default() }
}

fn playable<'a, S: Store>(
    name: &str,
    trace: &Trace,
    store: &Arc<S>,
    clock: &'a ManualClock,
) -> Result<Table<'a, S>, String> {
    let last = trace.lines.iter().map(|line| line.now).max().unwrap_or_default();
    if last > latest(&[trace.spec]) {
        return Err(format!("its clock shows {last}, where a double no longer tells microseconds apart"));
    }
    Table::new(name, &trace.spec, store, clock)
}

/// A limiter over the store, and the rules next to it.
struct Table<'a, S> {
    limiter: SharedLimiter<Arc<S>>,
    clock: &'a ManualClock,
    form: ScriptEncoding,
    space: KeySpace,
    rules: CoreStates,
    now: Timestamp,
}

impl<'a, S: Store> Table<'a, S> {
    fn new(name: &str, spec: &Spec, store: &Arc<S>, clock: &'a ManualClock) -> Result<Self, String> {
        let limit = spec.limit().map_err(|error| error.to_string())?;
        let form = ScriptEncoding::of(&limit).map_err(|error| error.to_string())?;
        let policy = format!("{name}-{}", policy_name(0));
        let limiter = SharedLimiter::new(store.clone(), &policy, limit).map_err(|error| error.to_string())?;
        let space = KeySpace::new("tk", &policy, "", &form);
        Ok(Self { limiter, clock, form, space, rules: CoreStates::default(), now: Timestamp::EPOCH })
    }

    async fn play_golden(&mut self, suite: &Golden) -> Result<(), String> {
        let shift = shift_by(&suite.spec);
        for (index, ask) in suite.asks.iter().enumerate() {
            self.move_to(Timestamp::from_millis(ask.now) + shift).await?;
            let decision = self.ask(&suite.key, ask.cost).await?;
            let want =
                GoldenDecision { reset_at: ask.expect.reset_at + shift.as_millis() as u64, ..ask.expect };
            if GoldenDecision::of(&decision) != Some(want) {
                return Err(format!("request {index}: want {want:?}, got {decision:?}"));
            }
        }
        Ok(())
    }

    async fn play(&mut self, trace: &Trace) -> Result<(), String> {
        let near_zero = trace.start() < EARLIEST;
        let shift = if near_zero { shift_by(&trace.spec) } else { Duration::ZERO };
        let mut as_on_disk = true;
        for line in &trace.lines {
            let at = line.now + shift;
            as_on_disk &= self.move_to(at).await? && at == self.now;
            let got = self.ask(&line.key, line.cost).await?;
            let written = Decision { reset_at: line.answer.reset_at + shift, ..line.answer };
            if as_on_disk && got != written {
                return Err(format!("\n  want {line}, later by {shift:?}\n  got  {}", print_answer(&got)));
            }
        }
        Ok(())
    }

    /// Makes a request to the store and the rules, which must agree.
    async fn ask(&mut self, key: &str, cost: u64) -> Result<Decision, String> {
        let got = self.limiter.check(Call::by(key).cost(cost)).await.map_err(|error| error.to_string())?;
        let name = self.space.key(key.as_bytes(), key.as_bytes());
        let charges = [Charge { key: &name, form: &self.form, cost }];
        let want = self.rules.admit(&Charges { need: Need::All, charges: &charges }, self.now);
        if (want.now, want.verdict.decision) == (got.now, got.decision) {
            return Ok(got.decision);
        }
        let (want, got) = (print_answer(&want.verdict.decision), print_answer(&got.decision));
        Err(format!("{key} {cost} at {}\n  rules {want}\n  store {got}", self.now))
    }

    /// Sets the clock to the microsecond of `at`. Returns false if a key was dropped on the way.
    async fn move_to(&mut self, at: Timestamp) -> Result<bool, String> {
        let now = Timestamp::from_nanos(at.as_nanos() - at.as_nanos() % MICRO);
        let idle = if now < self.now { self.rules.idle_keys(self.now) } else { Vec::new() };
        for name in &idle {
            self.rules.reset(name);
            self.limiter.store().reset(&[name]).await.map_err(|error| error.to_string())?;
        }
        self.now = now;
        self.clock.set(now);
        Ok(idle.is_empty())
    }
}

/// Returns a shift of whole windows, days away from the epoch. A bucket has no grid: any whole days will do.
fn shift_by(spec: &Spec) -> Duration {
    let window = match *spec {
        Spec::Window { cadence: Cadence::Every { length, .. }, .. }
        | Spec::Budget { cadence: Cadence::Every { length, .. }, .. }
        | Spec::SlidingWindow { length, .. }
        | Spec::SlidingLog { length, .. } => nanos(length),
        _ => AWAY_FROM_ZERO,
    };
    Duration::from_nanos(AWAY_FROM_ZERO.div_ceil(window) * window)
}

//! A store in one process: for tests, and for a service that is one process.

mod slots;
mod spaces;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::fair::pool::PoolState;
use throttlekit_core::lease::ReturnId;
use throttlekit_core::rate::shared::ScriptEncoding;
use throttlekit_core::rate::stored::Stored;
use throttlekit_core::rate::{Mark, Rule, State};
use tokio::runtime::Handle;

use self::slots::SlotTables;
use self::spaces::Spaces;
use super::membership::MembershipRecords;
use super::streams::{Found, Search, Streams};
use super::{Background, LocalShares, Settlement, Snapshot, Store, StoreError};
use super::{Charge, Charges, Debit, Debited, Decided, LeaseRequest, LeaseReturn, Leased, Outcome};
use super::{MembershipRecord, MembershipStore, RegionGrant, RegionRequest, RegionStore, Swapped};
use crate::Guarantee;
use crate::clock::{Clock, WallClock};
use crate::forward_store;
use crate::hash::{KeyHash, SecretHash};
use crate::memory::{BUDGET_DEFAULT, KeyMemory, LockedKey};
use crate::sync::{Mutex, RwLock};

/// Maximum number of returns that it remembers having counted. Beyond it, returned units lapse.
const RETURNS_MAX: usize = 100_000;
/// Maximum number of pools of regions.
const POOLS_MAX: usize = 1_024;

/// A [`Store`] in this process's memory, bounded.
///
/// If all callers are in one process, [`Limiter`](crate::Limiter) is much faster.
pub struct MemoryStore<C = WallClock> {
    clock: C,
    hash: SecretHash,
    spaces: Spaces,
    /// Requests of one charge share it, since their key's own lock makes them one step. Those of several own it.
    asks: RwLock<()>,
    /// Returns that were counted, and until when they could come again.
    returned: Mutex<(BTreeMap<ReturnId, Timestamp>, Search)>,
    /// Held while a debit is decided, so that the same one twice at once is charged once.
    streams: Mutex<Streams>,
    pools: Mutex<BTreeMap<Box<str>, PoolState>>,
    slots: SlotTables,
    memberships: Mutex<MembershipRecords>,
    /// For wrappers, which may be unavailable.
    local_shares: LocalShares,
    background: Background,
}

impl MemoryStore {
    /// Creates an empty store that reads the civil clock.
    pub fn new() -> Self {
        Self::with_clock(WallClock)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl<C: Clock> MemoryStore<C> {
    /// Creates an empty store that reads this clock.
    pub fn with_clock(clock: C) -> Self {
        Self {
            clock,
            hash: SecretHash::random(),
            spaces: Spaces::new(BUDGET_DEFAULT),
            asks: RwLock::default(),
            returned: Mutex::default(),
            streams: Mutex::default(),
            pools: Mutex::default(),
            slots: SlotTables::default(),
            memberships: Mutex::default(),
            local_shares: LocalShares::default(),
            background: Background::default(),
        }
    }

    /// Runs the background work of everything built on this store on the caller's runtime, instead of the driver
    /// thread: for tests whose time is paused.
    pub fn runtime(self, runtime: Handle) -> Self {
        Self { background: self.background.on(runtime), ..self }
    }

    /// Sets the most bytes that the keys of all limits may take, and forgets them. Default: 128 MiB.
    ///
    /// States are counted as large as they are: a key of a window or a bucket takes 80 to 160 bytes, a sliding log 16
    /// for each admission. Keys that owe nothing any more are removed first. Beyond the budget a key that does not fit
    /// is counted in an estimate, which is never below what it used: no key gets more than its limit, and one may be
    /// denied early. Decisions that rest on an estimate are labeled [`Guarantee::Bounded`](crate::Guarantee::Bounded)
    /// with the units that it may be short.
    pub fn memory_budget(self, bytes: usize) -> Self {
        Self { spaces: Spaces::new(bytes), ..self }
    }

    /// Returns how full the memory for keys is. Scans every key: for dashboards, not for requests.
    pub fn memory(&self) -> KeyMemory {
        self.spaces.memory(self.now())
    }

    /// Visits a key while it is locked among those of its limit. The state belongs to the key, so that a limit with
    /// other numbers continues from it; a budget and a window count together.
    fn visit<T>(
        &self,
        key: &str,
        form: &ScriptEncoding,
        now: Timestamp,
        visit: impl FnOnce(LockedKey<'_, Stored>) -> T,
    ) -> Result<T, StoreError> {
        let fingerprint = self.fingerprint(key);
        self.spaces.visit(key, form, now, |space| visit(space.keys.lock(fingerprint)))
    }

    /// Returns the state of a charge's key, and by how many units that may be short.
    fn look(&self, charge: &Charge<'_>, now: Timestamp) -> Result<(Stored, u64), StoreError> {
        self.visit(charge.key, charge.form, now, |key| {
            (stored(&key, charge.form, now).into_owned(), short(&key, charge.form, now))
        })
    }

    /// Returns the time in whole microseconds, as the other stores count it.
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.clock.now().as_micros())
    }

    fn answer(&self, ask: &Charges<'_>) -> Result<Outcome, StoreError> {
        let (_shared, _alone);
        if ask.charges.len() == 1 {
            _shared = self.asks.read();
        } else {
            _alone = self.asks.write();
        }
        let now = self.now();
        if let [charge] = ask.charges {
            return self.answer_one(ask, charge, now);
        }
        let each = || ask.charges.iter();
        let kept = each().map(|c| self.look(c, now)).collect::<Result<Vec<_>, _>>()?;
        let states: Vec<State> =
            each().zip(&kept).map(|(c, (kept, _))| kept.state(c.form, now).into_owned()).collect();
        let decide = |(c, state): (&Charge<'_>, &State)| c.form.limit().decide(state, c.cost, now);
        let decisions: Vec<_> = each().zip(&states).map(decide).collect();
        let admitted = ask.need.judge(&decisions).decision.allowed;
        if admitted {
            for (c, _) in each().zip(&decisions).filter(|(c, decision)| decision.allowed && c.cost > 0) {
                self.visit(c.key, c.form, now, |mut key| {
                    key.change(c.form, now, |kept| kept.charge(c.form, c.cost, now));
                })?;
            }
        }
        let ends = kept.iter().map(|(kept, _)| kept.end(now));
        let short = kept.iter().map(|(_, short)| *short).max().unwrap_or(0);
        Ok(Outcome::of(ask, &states, now, admitted)?.in_windows(ask, ends).estimated(short))
    }

    /// Decides under the key's own lock, concurrently with others.
    fn answer_one(
        &self,
        ask: &Charges<'_>,
        charge: &Charge<'_>,
        now: Timestamp,
    ) -> Result<Outcome, StoreError> {
        let (state, end, admitted, short) = self.visit(charge.key, charge.form, now, |mut key| {
            let short = short(&key, charge.form, now);
            let kept = stored(&key, charge.form, now);
            let (state, end) = (kept.state(charge.form, now).into_owned(), kept.end(now));
            drop(kept);
            let admitted = check(&mut key, charge, &state, now);
            (state, end, admitted, short)
        })?;
        let outcome = Outcome::of(ask, &[state], now, admitted)?;
        Ok(outcome.in_windows(ask, [end].into_iter()).estimated(short))
    }

    /// Decides one charge that nobody settles, likewise.
    fn decide(&self, charge: &Charge<'_>) -> Result<Decided, StoreError> {
        let &Charge { form, cost, .. } = charge;
        let _shared = self.asks.read();
        let now = self.now();
        let (decision, short) = self.visit(charge.key, form, now, |mut key| {
            let (decision, short) = match key.known() {
                Some(kept) => (form.limit().decide(&kept.state(form, now), cost, now), 0),
                None => {
                    let short = short(&key, form, now);
                    (form.limit().decide(&stored(&key, form, now).state(form, now), cost, now), short)
                }
            };
            if decision.allowed && cost > 0 {
                key.change(form, now, |kept| kept.charge(form, cost, now));
            }
            (decision, short)
        })?;
        let guarantee = if short > 0 { Guarantee::Bounded(short) } else { Guarantee::Exact };
        Ok(Decided { now, decision, guarantee })
    }

    fn debit_once(&self, debit: &Debit<'_>) -> Result<Debited, StoreError> {
        debit.check()?;
        let (charge, form) = (&debit.charge, debit.charge.form);
        let stream = (self.fingerprint(charge.key), debit.id.stream);
        let mut streams = self.streams.lock();
        let _shared = self.asks.read();
        let now = self.now();
        let last = streams.last(stream, now);
        let before_short = last.map_or(0, |last| last.short);
        let last = last.map(|last| last.read(form));
        if let Some(Debited { outcome, repeated }) = debit.repeats(last.as_ref())? {
            return Ok(Debited { outcome: outcome.estimated(before_short), repeated });
        }
        streams.make_room(stream, now)?;
        let (kept, admitted, short) = self.visit(charge.key, form, now, |mut key| {
            let (kept, short) = (stored(&key, form, now).into_owned(), short(&key, form, now));
            let admitted = check(&mut key, charge, &kept.state(form, now), now);
            (kept, admitted, short)
        })?;
        let found = Found { number: debit.id.number, cost: debit.cost(), now, stored: kept, admitted, short };
        let answer = debit.answer(&found.read(form), false);
        streams.remember(stream, debit, found);
        answer.map(|Debited { outcome, repeated }| Debited { outcome: outcome.estimated(short), repeated })
    }

    fn lend(&self, ask: &LeaseRequest<'_>) -> Result<Leased, StoreError> {
        let (authority, form) = (ask.authority()?, ask.form);
        let _shared = self.asks.read();
        let now = self.now();
        let (numbers, granted) = self.visit(ask.key, form, now, |mut key| {
            let kept = stored(&key, form, now).into_owned();
            let numbers = kept.numbers(form, now);
            let granted = authority.look(&kept.state(form, now), ask.want, now).granted;
            if granted > 0 {
                key.change(form, now, |kept| kept.charge(form, granted, now));
            }
            (numbers, granted)
        })?;
        Leased::of(ask, &numbers, now, granted)
    }

    fn take_back(&self, given: &LeaseReturn<'_>) -> Result<(), StoreError> {
        given.authority()?;
        let (form, back) = (given.form, given.back);
        let _shared = self.asks.read();
        let now = self.now();
        if self.counts(given.id, now, now + form.limit().period())? {
            self.visit(given.key, form, now, |mut key| {
                if let Some(kept) = key.known() {
                    kept.take_back(form, Mark(back.epoch.0), back.units);
                }
            })?;
        }
        Ok(())
    }

    /// Returns whether this return has not been counted; an error if it could not be remembered.
    fn counts(&self, id: ReturnId, now: Timestamp, until: Timestamp) -> Result<bool, StoreError> {
        let (returned, search) = &mut *self.returned.lock();
        if returned.len() >= RETURNS_MAX && search.is_due(now) {
            returned.retain(|_, until| *until > now);
        }
        if returned.len() >= RETURNS_MAX {
            return Err(StoreError::unavailable(
                "too many returns to remember: these units expire with their lease",
            ));
        }
        Ok(returned.insert(id, until).is_none())
    }

    fn fingerprint(&self, key: &str) -> u64 {
        self.hash.fingerprint(key.as_bytes())
    }
}

impl<C: Clock + 'static> Store for MemoryStore<C> {
    async fn admit(&self, asks: &[Charges<'_>]) -> Result<Vec<Outcome>, StoreError> {
        asks.iter().map(|ask| self.answer(ask)).collect()
    }

    fn admit_now(&self, ask: &Charges<'_>) -> Option<Result<Outcome, StoreError>> {
        Some(self.answer(ask))
    }

    fn decide_now(&self, charge: &Charge<'_>) -> Option<Result<Decided, StoreError>> {
        Some(self.decide(charge))
    }

    async fn debit(&self, debits: &[Debit<'_>]) -> Vec<Result<Debited, StoreError>> {
        debits.iter().map(|debit| self.debit_once(debit)).collect()
    }

    async fn peek(&self, charges: &[Charge<'_>]) -> Result<Snapshot, StoreError> {
        let _alone = self.asks.write();
        let now = self.now();
        let state = |c: &Charge<'_>| Ok(self.look(c, now)?.0.state(c.form, now).into_owned());
        Ok(Snapshot { now, states: charges.iter().map(state).collect::<Result<_, _>>()? })
    }

    async fn settle(&self, settlements: &[Settlement<'_>]) -> Result<(), StoreError> {
        let _alone = self.asks.write();
        let now = self.now();
        settlements.iter().try_for_each(|s| {
            self.visit(s.key, s.form, now, |mut key| {
                let by = |kept: &mut Stored| kept.settle(s.form, s.mark, s.charged, s.actual, now);
                match key.known() {
                    Some(kept) => by(kept),
                    // A key that is not known has nothing to return units from, and owes all the same.
                    None if s.actual > s.charged => key.change(s.form, now, by),
                    None => {}
                }
            })
        })
    }

    async fn lease(&self, asks: &[LeaseRequest<'_>]) -> Vec<Result<Leased, StoreError>> {
        asks.iter().map(|ask| self.lend(ask)).collect()
    }

    async fn give_back(&self, backs: &[LeaseReturn<'_>]) -> Result<(), StoreError> {
        backs.iter().try_for_each(|given| self.take_back(given))
    }

    async fn reset(&self, keys: &[&str]) -> Result<(), StoreError> {
        keys.iter().for_each(|key| self.spaces.remove(self.fingerprint(key)));
        let mut pools = self.pools.lock();
        keys.iter().for_each(|key| drop(pools.remove(*key)));
        keys.iter().for_each(|key| self.slots.forget(key));
        let mut memberships = self.memberships.lock();
        keys.iter().for_each(|key| memberships.remove(key));
        Ok(())
    }

    fn local_shares(&self) -> Option<&LocalShares> {
        Some(&self.local_shares)
    }

    fn background(&self) -> Background {
        self.background.clone()
    }
}

impl<C: Clock + 'static> RegionStore for MemoryStore<C> {
    async fn grant(&self, ask: &RegionRequest<'_>) -> Result<RegionGrant, StoreError> {
        let pool = ask.pool()?;
        let mut pools = self.pools.lock();
        let now = self.now();
        if pools.len() >= POOLS_MAX && !pools.contains_key(ask.key) {
            pools.retain(|_, state| state.ends > now);
            if pools.len() >= POOLS_MAX {
                return Err(StoreError::misconfigured(format_args!(
                    "too many pools: at most {POOLS_MAX} at a time"
                )));
            }
        }
        let state = pools.entry(ask.key.into()).or_default();
        let grant = pool.grant(state, ask.ask(), now).map_err(StoreError::misconfigured)?;
        Ok(RegionGrant { now, grant })
    }

    forward_store!(Store for self => *self; background);
}

impl<C: Clock + 'static> MembershipStore for MemoryStore<C> {
    async fn load(&self, key: &str) -> Result<MembershipRecord, StoreError> {
        let memberships = self.memberships.lock();
        Ok(memberships.load(key, self.now()))
    }

    async fn swap(
        &self,
        key: &str,
        version: u64,
        bytes: &[u8],
        keeps: Duration,
    ) -> Result<Swapped, StoreError> {
        let mut memberships = self.memberships.lock();
        memberships.swap(key, version, bytes, keeps, self.now())
    }

    forward_store!(Store for self => *self; background);
}

debug_fields!([C] MemoryStore<C>);

/// Returns the state of a key, or its initial one.
fn stored<'a>(key: &'a LockedKey<'_, Stored>, form: &ScriptEncoding, now: Timestamp) -> Cow<'a, Stored> {
    key.state(form, now).unwrap_or_else(|| Cow::Owned(Stored::default()))
}

/// Returns by how many units an estimated key may be short: the whole estimate. Zero for one that is kept.
fn short(key: &LockedKey<'_, Stored>, form: &ScriptEncoding, now: Timestamp) -> u64 {
    if !key.is_estimated(form, now) {
        return 0;
    }
    let left = form.limit().decide(&stored(key, form, now).state(form, now), 0, now);
    (left.limit - left.remaining).max(1)
}

/// Charges what the limit allows.
fn check(key: &mut LockedKey<'_, Stored>, charge: &Charge<'_>, state: &State, now: Timestamp) -> bool {
    let allowed = charge.form.limit().decide(state, charge.cost, now).allowed;
    if allowed && charge.cost > 0 {
        key.change(charge.form, now, |kept| kept.charge(charge.form, charge.cost, now));
    }
    allowed
}

#[cfg(test)]
mod tests {
    use throttlekit_core::rate::Limit;

    use super::*;
    use crate::clock::ManualClock;
    use crate::store::DebitId;

    const MS: Duration = Duration::from_millis(1);

    /// A second of a memory of 100,000 names that is full, in which a name expires each millisecond while two come:
    /// returns how many of these are admitted, and how often one is after another was not, which takes a search.
    fn let_in_and_searches(clock: &ManualClock, enters: impl Fn(u128, Duration) -> bool) -> (u32, u32) {
        assert!((1..=100_000).all(|name| enters(name.into(), MS * name)));
        let (mut let_in, mut searches, mut before) = (0, 0, false);
        for newcomer in 0..2_000 {
            if newcomer % 2 == 0 {
                clock.advance(MS);
            }
            let is_in = enters(1 << 64 | newcomer, MS * 60_000);
            let_in += u32::from(is_in);
            searches += u32::from(is_in && !before);
            before = is_in;
        }
        (let_in, searches)
    }

    #[test]
    fn a_memory_full_of_streams_is_searched_ten_times_a_second_at_most() {
        let clock = ManualClock::at(Timestamp::from_millis(1_700_000_000_000));
        let store = MemoryStore::with_clock(clock.clone());
        let form = ScriptEncoding::of(&Limit::token_budget(1_000, MS * 60_000).unwrap()).unwrap();
        let (let_in, searches) = let_in_and_searches(&clock, |stream, remember| {
            let charge = Charge { key: "acme", form: &form, cost: 1 };
            store.debit_once(&Debit { charge, id: DebitId { stream, number: 1 }, remember }).is_ok()
        });
        assert!(searches <= 10 && let_in >= 900, "{searches} searches, {let_in} let in");
    }

    #[test]
    fn a_memory_full_of_returns_is_searched_ten_times_a_second_at_most() {
        let clock = ManualClock::at(Timestamp::from_millis(1_700_000_000_000));
        let store = MemoryStore::with_clock(clock.clone());
        let (let_in, searches) = let_in_and_searches(&clock, |name, lives| {
            store.counts(ReturnId(name), clock.now(), clock.now() + lives).is_ok_and(|counts| counts)
        });
        assert!(searches <= 10 && let_in >= 900, "{searches} searches, {let_in} let in");
    }
}

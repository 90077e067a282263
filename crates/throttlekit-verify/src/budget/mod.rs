//! `budget`: for any number of gateways and streams that debit one token budget, at most `budget + g − 1`
//! tokens are charged in a window where no debit is of more than `g`; exactly the budget where each is of
//! one.
//!
//! Several gateways debit a real [`Store`] until they are denied, over a network that loses responses and
//! delivers some debits twice or late. The responses to the streams are compared with the store's count. The
//! same check runs on gateways with a seeded bug.

mod gateway;
mod lossy;
mod seeded;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use throttlekit::Limit;
use throttlekit::store::{Charge, DebitId, KeySpace, Store};
use throttlekit_core::rate::State;
use throttlekit_core::rate::shared::ScriptEncoding;

pub use gateway::{Gateway, LeasedGateway, StrictGateway, Told};
pub use lossy::Lossy;
pub use seeded::{BudgetBug, find_seeded};
use throttlekit_conformance::Dice;

/// Longer than any run.
const WINDOW: Duration = Duration::from_secs(30 * 86_400);
/// A budget has capacity for this many of the largest debits, plus one token: then the last of equal debits
/// exceeds it by the maximum.
const LARGEST_DEBITS: u64 = 150;
const KEY: &str = "acme";

/// The sizes of debits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunks {
    /// All of this many tokens.
    Of(u64),
    /// From one to this many.
    UpTo(u64),
}

/// The mode of a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Each debit goes to the store by its identifier.
    Strict,
    /// The gateway leases batches of tokens and spends them locally.
    Leased,
}

/// One configuration of gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Gateways, each with a limiter of its own.
    pub gateways: u64,
    /// Streams on each gateway.
    pub streams: u64,
    /// The sizes of their debits.
    pub chunks: Chunks,
    /// The mode of the gateways.
    pub way: Way,
    /// True if the network loses requests and responses.
    pub loses: bool,
}

/// The result of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The budget.
    pub budget: u64,
    /// Tokens that were allowed to streams.
    pub told: u64,
    /// Tokens that the store counted.
    pub charged: u64,
    /// Debits with a response.
    pub debits: u64,
    /// Debits that were sent again: in doubt, as a copy or late.
    pub again: u64,
}

impl Chunks {
    /// Returns the largest debit.
    pub fn largest(self) -> u64 {
        let (Self::Of(tokens) | Self::UpTo(tokens)) = self;
        tokens
    }

    fn draw(self, dice: &mut Dice) -> u64 {
        match self {
            Self::Of(tokens) => tokens,
            Self::UpTo(tokens) => dice.between(1, tokens),
        }
    }
}

impl Setup {
    /// Returns the budget that its streams share.
    pub fn budget(&self) -> u64 {
        LARGEST_DEBITS * self.chunks.largest() + 1
    }

    /// Returns the maximum that may be charged.
    pub fn bound(&self) -> u64 {
        self.budget() + self.chunks.largest() - 1
    }

    /// Checks a result against the bound.
    pub fn check(&self, seen: &Seen) -> Result<(), String> {
        let Seen { budget, told, charged, .. } = *seen;
        let bound = self.bound();
        let wrong = |what: String| Err(format!("{self}: {what}"));
        if told > bound || charged > bound {
            return wrong(format!("{told} tokens passed and {charged} were charged, {bound} may be"));
        }
        if self.way == Way::Strict && told != charged {
            return wrong(format!("{told} tokens passed and {charged} were charged"));
        }
        if told > charged {
            return wrong(format!("{told} tokens passed of {charged} that were lent"));
        }
        // A node has fewer tokens left than any of its streams requested; tokens lost on the way are never
        // spent.
        let stranded = match self.way {
            Way::Strict => 0,
            Way::Leased if self.loses => u64::MAX,
            Way::Leased => self.gateways * (self.chunks.largest() - 1),
        };
        if told < budget.saturating_sub(stranded) {
            return wrong(format!("only {told} tokens of {budget} passed, {stranded} may be left at nodes"));
        }
        Ok(())
    }

    /// Returns `true` if no run could exceed the budget by more.
    pub fn is_tight(&self, seen: &Seen) -> bool {
        seen.told == self.bound()
    }

    fn limit(&self) -> Limit {
        Limit::token_budget(self.budget(), WINDOW).expect("a budget")
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { gateways, streams, chunks, way, loses } = self;
        let network = if *loses { ", answers lost" } else { "" };
        write!(f, "{way:?}, {gateways} gateways of {streams} streams, debits {chunks:?}{network}")
    }
}

/// Returns every configuration of these sizes, with debits of one, of chunks and mixed, strict and leased,
/// with losses and without.
pub fn setups(gateways: &[u64], streams: &[u64], largest: &[u64]) -> Vec<Setup> {
    let mut all = Vec::new();
    let chunks = || {
        let mixed = largest.iter().copied().max().map(Chunks::UpTo);
        [Chunks::Of(1)].into_iter().chain(largest.iter().copied().map(Chunks::Of)).chain(mixed)
    };
    for (&gateways, &streams) in gateways.iter().flat_map(|g| streams.iter().map(move |s| (g, s))) {
        for (chunks, way) in chunks().flat_map(|c| [(c, Way::Strict), (c, Way::Leased)]) {
            for loses in [false, true] {
                all.push(Setup { gateways, streams, chunks, way, loses });
            }
        }
    }
    all
}

/// Runs one configuration. The gateways use the stores in turn, which all lead to one; the policy's name is
/// unique to the run.
///
/// # Panics
///
/// Panics if the store does not respond, or gives two different responses to the same debit.
pub async fn run<S: Store>(stores: &[Arc<S>], policy: &str, setup: Setup) -> Seen {
    let store = |gateway: u64| {
        let lossy = if setup.loses { 8 } else { 0 };
        Lossy::new(stores[gateway as usize % stores.len()].clone(), lossy, gateway)
    };
    let limit = setup.limit();
    let largest = setup.chunks.largest();
    match setup.way {
        Way::Strict => run_with(stores, policy, setup, |g| StrictGateway::new(store(g), policy, limit)).await,
        Way::Leased => {
            run_with(stores, policy, setup, |g| LeasedGateway::new(store(g), policy, limit, 4 * largest))
                .await
        }
    }
}

/// Runs the configuration with these gateways.
async fn run_with<S: Store, G: Gateway>(
    stores: &[Arc<S>],
    policy: &str,
    setup: Setup,
    gateway: impl Fn(u64) -> G,
) -> Seen {
    let account = Arc::new(Account::default());
    let gateways: Vec<Arc<G>> = (0..setup.gateways).map(|i| Arc::new(gateway(i))).collect();
    let streams = gateways.iter().flat_map(|gateway| (0..setup.streams).map(move |_| gateway.clone()));
    let tasks: Vec<_> = streams
        .zip(1..)
        .map(|(gateway, stream)| {
            let dice = Dice::new(u64::try_from(stream).unwrap_or(0));
            let stream = Stream { gateway, stream, setup, dice, account: account.clone() };
            tokio::spawn(stream.run())
        })
        .collect();
    for task in tasks {
        task.await.expect("a stream does not panic");
    }
    let read = |counter: &AtomicU64| counter.load(Relaxed);
    Seen {
        budget: setup.budget(),
        told: read(&account.told),
        charged: charged(&*stores[0], policy, setup).await,
        debits: read(&account.debits),
        again: read(&account.again),
    }
}

/// Returns the tokens that the store counted.
async fn charged<S: Store>(store: &S, policy: &str, setup: Setup) -> u64 {
    let form = ScriptEncoding::of(&setup.limit()).expect("of whole microseconds");
    let key = KeySpace::new("tk", policy, "", &form).key(KEY.as_bytes(), KEY.as_bytes());
    let sight = store.peek(&[Charge { key: &key, form: &form, cost: 1 }]).await.expect("the store answers");
    match sight.states[..] {
        [State::Count(count)] => count.used,
        _ => 0,
    }
}

#[derive(Default)]
struct Account {
    told: AtomicU64,
    debits: AtomicU64,
    again: AtomicU64,
}

/// One stream: debits until it is denied.
struct Stream<G> {
    gateway: Arc<G>,
    stream: u128,
    setup: Setup,
    dice: Dice,
    account: Arc<Account>,
}

impl<G: Gateway> Stream<G> {
    async fn run(mut self) {
        for number in 1.. {
            let tokens = self.setup.chunks.draw(&mut self.dice);
            let id = DebitId { stream: self.stream, number };
            let told = self.debit(tokens, id).await;
            self.account.debits.fetch_add(1, Relaxed);
            if told != Told::Allowed {
                return;
            }
            self.account.told.fetch_add(tokens, Relaxed);
            if G::NAMED && number > 1 && self.dice.once_in(16) {
                self.straggle(DebitId { number: number - 1, ..id }).await;
            }
        }
    }

    /// Retries a debit until it gets a response, and now and then sends it twice at once.
    async fn debit(&mut self, tokens: u64, id: DebitId) -> Told {
        loop {
            let copies = G::NAMED && self.dice.once_in(8);
            let copy = copies.then(|| tokio::spawn(send(self.gateway.clone(), tokens, id)));
            let told = self.gateway.debit(tokens, id).await;
            let other = match copy {
                Some(copy) => copy.await.expect("a copy does not panic"),
                None => Told::Unknown,
            };
            self.account.again.fetch_add(u64::from(copies), Relaxed);
            match (told, other) {
                (Told::Unknown, Told::Unknown) => self.account.again.fetch_add(1, Relaxed),
                (Told::Unknown, told) | (told, Told::Unknown) => return told,
                (told, other) => {
                    assert_eq!(told, other, "one debit, two answers");
                    return told;
                }
            };
        }
    }

    /// Checks that a debit that arrives after a later one is not charged.
    async fn straggle(&self, id: DebitId) {
        self.account.again.fetch_add(1, Relaxed);
        let told = self.gateway.debit(1, id).await;
        assert!(matches!(told, Told::Late | Told::Unknown), "a straggler is answered: {told:?}");
    }
}

async fn send<G: Gateway>(gateway: Arc<G>, tokens: u64, id: DebitId) -> Told {
    gateway.debit(tokens, id).await
}

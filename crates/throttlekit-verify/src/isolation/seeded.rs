//! Bugs that no client of a store may have, and the client they are seeded into. The harness must find each;
//! without its bug the client must pass.

use std::hash::{BuildHasher, RandomState};
use std::mem;
use std::sync::{Arc, Weak};
use std::time::Duration;

use throttlekit::clock::{BootClock, Clock};
use throttlekit::internals::{Mutex, MutexGuard};
use throttlekit::rate::Timestamp;
use throttlekit::store::StoreError;
use tokio::sync::{Mutex as Turn, Semaphore, mpsc, oneshot};
use tokio::time::{sleep, timeout};

use super::background;
use super::client::{Core, IN_FLIGHT_MAX};
use super::schedule::{Fault, Kind, Misbehaviour, Schedule, Timing, Trouble};

/// The time for which a client with that bug considers a server unusable.
const UNUSABLE_FOR: Duration = Duration::from_millis(100);

throttlekit_conformance::bugs! {
    /// A bug of a client.
    pub enum Bug {
        Control: "None: the client itself must pass.",
        ProberOnCallersRuntime: "The prober runs on the runtime of whoever saw the last outage, and nobody starts another.",
        AbandonedCallsNotCounted: "A call that its caller gave up says nothing about the connection.",
        NoDeadline: "A call waits for its answer without a deadline.",
        ImpatienceOpensTheBreaker: "Every call that is given up counts as an outage, whatever was answered meanwhile.",
        ProbesTooRare: "Probes are twenty times as rare as configured.",
        ConnectionPerAbandonedCall: "Each call that is given up leaves its connection open.",
        PlacePerAbandonedCall: "Each call that is given up keeps its place among those in flight.",
        ConnectionOnCallersRuntime: "What reads the connection runs on the runtime that dialled.",
        DialUnderALock: "Callers dial under a lock, which one that is not polled keeps.",
        OneCallAtATime: "Calls go one at a time, and one that is not polled keeps its turn.",
        UnusableUntilATaskForgets: "That a server may not be used is remembered until a task on the caller's runtime forgets it.",
        HandleKeptByATask: "A task of the store's never ends, and holds it.",
        HeartbeatNeverAnswered: "Heartbeats of slots are never answered.",
        ReleaseNeverAnswered: "Releases of slots are never answered.",
        CallsOnCallersRuntime: "Calls to the store run on the runtime that built it.",
        LeaseRequestsOnCallersRuntime: "Requests for leased units run there.",
        FairRequestsOnCallersRuntime: "Requests of a fair limiter run there.",
        RenewalsOnCallersRuntime: "Renewals and releases of slots run there.",
        HeartbeatsOnCallersRuntime: "Heartbeats of a node of a shared ceiling run there.",
        ReturnsOnCallersRuntime: "Reservations and returns of a token budget run there.",
        SettlementsOnCallersRuntime: "Charges and settlements of a policy run there.",
    }
}

impl Bug {
    /// Every seeded bug: all but the control, which is the first.
    pub const SEEDED: &'static [Self] = Self::ALL.split_at(1).1;

    /// Returns the types whose background work it moves to the runtime that built them.
    fn moved(self) -> &'static [Kind] {
        match self {
            Self::CallsOnCallersRuntime => &[Kind::Strict],
            Self::LeaseRequestsOnCallersRuntime => &[Kind::Leased],
            Self::FairRequestsOnCallersRuntime => &[Kind::Fair, Kind::FairRegion],
            Self::RenewalsOnCallersRuntime => &[Kind::Slots],
            Self::HeartbeatsOnCallersRuntime => &[Kind::Ceiling],
            Self::ReturnsOnCallersRuntime => &[Kind::Budget],
            Self::SettlementsOnCallersRuntime => &[Kind::Policy],
            _ => &[],
        }
    }

    pub(super) fn moves_background(self) -> bool {
        !self.moved().is_empty()
    }

    pub(super) fn is_in_the_client(&self) -> bool {
        let elsewhere = [Self::HandleKeptByATask, Self::HeartbeatNeverAnswered, Self::ReleaseNeverAnswered];
        !elsewhere.contains(self) && !self.moves_background()
    }

    /// Returns `true` if a schedule could expose it. Others are not run: they take seconds each.
    pub fn could_show_in(self, schedule: &Schedule) -> bool {
        let Schedule { kind, misbehaviour, fault, callers, .. } = schedule;
        let is = |trouble| fault.is_some_and(|fault: Fault| fault.trouble == trouble);
        let away = is(Trouble::Refuses) || is(Trouble::Hangs);
        let gone = matches!(misbehaviour, Misbehaviour::Dropped | Misbehaviour::Idle { .. });
        let kept = matches!(misbehaviour, Misbehaviour::Idle { keeps_future: true });
        let strict = *kind == Kind::Strict;
        match self {
            Self::ProberOnCallersRuntime => gone && away,
            Self::AbandonedCallsNotCounted => {
                strict && is(Trouble::Silent) && callers[1].own_timeout.is_some()
            }
            Self::NoDeadline => strict && (is(Trouble::Silent) || is(Trouble::Hangs)),
            Self::ImpatienceOpensTheBreaker => {
                strict && fault.is_none() && *misbehaviour == Misbehaviour::Cancels
            }
            Self::ProbesTooRare => away,
            Self::ConnectionPerAbandonedCall | Self::PlacePerAbandonedCall => {
                strict && *misbehaviour == Misbehaviour::Cancels
            }
            Self::ConnectionOnCallersRuntime => gone && schedule.rogue_builds && fault.is_none(),
            Self::DialUnderALock | Self::OneCallAtATime => {
                strict && kept && callers[0].polls.is_some() && schedule.seed % 2 == 1
            }
            Self::UnusableUntilATaskForgets => gone && is(Trouble::Unusable),
            Self::Control | Self::HandleKeptByATask => true,
            Self::HeartbeatNeverAnswered | Self::ReleaseNeverAnswered => *kind == Kind::Slots,
            Self::CallsOnCallersRuntime
            | Self::LeaseRequestsOnCallersRuntime
            | Self::FairRequestsOnCallersRuntime
            | Self::RenewalsOnCallersRuntime
            | Self::HeartbeatsOnCallersRuntime
            | Self::ReturnsOnCallersRuntime
            | Self::SettlementsOnCallersRuntime => {
                gone && schedule.rogue_builds && self.moved().contains(kind)
            }
        }
    }
}

/// A correct client, except for one bug.
pub(super) struct Seeded {
    core: Arc<Core>,
    timing: Timing,
    bug: Bug,
    state: Mutex<State>,
    places: Arc<Semaphore>,
    turn: Turn<()>,
    dialing: Turn<()>,
    /// The channel to the task that reads the connection, where there is one.
    reader: Mutex<Option<mpsc::Sender<Reply>>>,
}

type Reply = oneshot::Sender<Result<(), StoreError>>;

#[derive(Default)]
struct State {
    in_a_row: u32,
    /// The cause of the open breaker.
    open: Option<StoreError>,
    unusable: Option<StoreError>,
    answered_at: Timestamp,
}

impl Seeded {
    pub(super) fn new(core: Arc<Core>, timing: Timing, bug: Bug) -> Arc<Self> {
        Arc::new(Self {
            core,
            timing,
            bug,
            state: Mutex::default(),
            places: Arc::new(Semaphore::new(IN_FLIGHT_MAX)),
            turn: Turn::default(),
            dialing: Turn::default(),
            reader: Mutex::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(super) fn is_open(&self) -> bool {
        self.state().open.is_some()
    }

    /// Connects before the first call, unless callers are supposed to.
    pub(super) async fn begin(&self) -> Result<(), StoreError> {
        if self.bug == Bug::DialUnderALock {
            return Ok(());
        }
        self.core.dial().await?;
        if self.bug == Bug::ConnectionOnCallersRuntime {
            let (sender, queue) = mpsc::channel(IN_FLIGHT_MAX);
            *self.reader.lock() = Some(sender);
            tokio::spawn(read(Arc::downgrade(&self.core), queue));
        }
        Ok(())
    }

    pub(super) async fn call(self: &Arc<Self>) -> Result<(), StoreError> {
        if let Some(why) = self.refusal() {
            return Err(why);
        }
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            return Err(StoreError::unavailable("too many calls are in flight"));
        };
        let mut call = Calling { client: self, begun: BootClock.now(), place: Some(place), answered: false };
        let _turn = if self.bug == Bug::OneCallAtATime { Some(self.turn.lock().await) } else { None };
        let deadline = self.timing.deadline;
        let answer = match self.bug {
            Bug::NoDeadline => self.round_trip().await,
            _ => timeout(deadline, self.round_trip()).await.unwrap_or(Err(StoreError::Deadline(deadline))),
        };
        call.answered = true;
        self.note(answer.as_ref().err());
        answer
    }

    fn refusal(&self) -> Option<StoreError> {
        let state = self.state();
        state.open.clone().or_else(|| state.unusable.clone())
    }

    async fn round_trip(&self) -> Result<(), StoreError> {
        let reader = self.reader.lock().clone();
        if let Some(reader) = reader {
            let (told, hears) = oneshot::channel();
            let gone = || StoreError::unavailable("the connection is gone");
            reader.send(told).await.map_err(|_| gone())?;
            return hears.await.unwrap_or_else(|_| Err(gone()));
        }
        if self.bug == Bug::DialUnderALock && self.core.current().is_none() {
            let _one = self.dialing.lock().await;
            if self.core.current().is_none() {
                self.core.dial().await?;
            }
        }
        self.core.round_trip().await
    }

    fn note(self: &Arc<Self>, error: Option<&StoreError>) {
        match error {
            Some(error) if error.is_outage() => self.failed(error),
            Some(error) => {
                if self.bug == Bug::UnusableUntilATaskForgets {
                    self.state().unusable = Some(error.clone());
                    let client = Arc::downgrade(self);
                    tokio::spawn(async move {
                        sleep(UNUSABLE_FOR).await;
                        client.upgrade().inspect(|client| client.state().unusable = None);
                    });
                }
            }
            None => {
                let mut state = self.state();
                state.answered_at = BootClock.now();
                if self.bug != Bug::ImpatienceOpensTheBreaker {
                    state.in_a_row = 0;
                }
            }
        }
    }

    fn failed(self: &Arc<Self>, why: &StoreError) {
        let mut state = self.state();
        state.in_a_row += 1;
        if state.in_a_row < self.timing.opens_after || state.open.is_some() {
            return;
        }
        state.open = Some(StoreError::unavailable(format_args!("circuit breaker open: {why}")));
        drop(state);
        let probing = probe(Arc::downgrade(self), self.bug, self.timing);
        match self.bug {
            Bug::ProberOnCallersRuntime => drop(tokio::spawn(probing)),
            _ => drop(background().spawn(probing)),
        }
    }
}

/// A call in flight. Dropped before its response, it was abandoned.
struct Calling<'a> {
    client: &'a Arc<Seeded>,
    begun: Timestamp,
    place: Option<tokio::sync::OwnedSemaphorePermit>,
    answered: bool,
}

impl Drop for Calling<'_> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let Seeded { bug, timing, core, .. } = &**self.client;
        match bug {
            Bug::ConnectionPerAbandonedCall => mem::forget(core.current()),
            Bug::PlacePerAbandonedCall => mem::forget(self.place.take()),
            _ => {}
        }
        let unanswered = self.client.state().answered_at <= self.begun;
        let waited = BootClock.now().since(self.begun) >= timing.deadline / 2;
        let counts = match bug {
            Bug::AbandonedCallsNotCounted => false,
            Bug::ImpatienceOpensTheBreaker => true,
            _ => unanswered && waited,
        };
        if counts {
            self.client.failed(&StoreError::Deadline(timing.deadline));
        }
    }
}

/// Responds to calls over the connection, for as long as its runtime lets it.
async fn read(core: Weak<Core>, mut queue: mpsc::Receiver<Reply>) {
    while let Some(told) = queue.recv().await {
        let Some(core) = core.upgrade() else { return };
        let _ = told.send(core.round_trip().await);
    }
}

/// Ends when the server responds, or the client is no longer held.
async fn probe(client: Weak<Seeded>, bug: Bug, timing: Timing) {
    let every = if bug == Bug::ProbesTooRare { timing.probe_every * 20 } else { timing.probe_every };
    loop {
        let scattered = RandomState::new().hash_one(0) % 512;
        sleep(every / 2 + every.mul_f64(scattered as f64 / 1_024.0)).await;
        let Some(core) = client.upgrade().map(|client| client.core.clone()) else { return };
        if timeout(timing.probe_every, core.revive()).await.is_ok_and(|answer| answer.is_ok()) {
            if let Some(client) = client.upgrade() {
                client.reader.lock().take();
                let mut state = client.state();
                (state.open, state.in_a_row) = (None, 0);
            }
            return;
        }
    }
}

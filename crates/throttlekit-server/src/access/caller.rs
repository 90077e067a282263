//! Who asks, and what it may.

use std::num::NonZeroU32;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Principal;
use super::grant::Grant;
use crate::engine::{Answered, Engine, Refusal};
use crate::share::Turn;

/// What can be asked, for allow-lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Door {
    /// Check, CheckMany: asks that are charged.
    Check,
    /// Peek, Forecast: looks at what others have left.
    Peek,
    /// Debit.
    Debit,
    /// Admit, Release, Heartbeat.
    Admit,
    /// Fleet.Reserve.
    Reserve,
    /// Envoy's rate limit service.
    Envoy,
    /// The monitor, which shows keys.
    Monitor,
}

/// Who asks, and what it may. Put into a request's extensions by [`Identify`](super::Identify).
#[derive(Clone, Debug)]
pub struct Caller {
    principal: Principal,
    rights: Rights,
    weight: NonZeroU32,
    /// Of the request that it sent.
    turn: Option<Arc<Turn>>,
    /// Whether there was none for that request.
    crowded: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Rights {
    /// Everything.
    All,
    /// Everything but, perhaps, what shows or lends a lot at once.
    Open { monitor: bool, reserve: bool },
    /// What is listed.
    Listed(Arc<[Grant]>),
}

impl Caller {
    pub(super) fn new(principal: Principal, rights: Rights) -> Self {
        Self { principal, rights, weight: NonZeroU32::MIN, turn: None, crowded: false }
    }

    /// What it counts for beside others, where they share the server.
    pub(crate) fn weight(&self) -> NonZeroU32 {
        self.weight
    }

    /// Gives it the turn of its request, or says that there was none.
    pub(crate) fn takes(&mut self, turn: Option<Turn>) {
        self.crowded = turn.is_none();
        self.turn = turn.map(Arc::new);
    }

    /// Whether its request is to be answered without a decision, as too much of it is under way.
    pub(crate) fn is_crowded(&self) -> bool {
        self.crowded
    }

    /// Says how many decisions its request asks for.
    pub(crate) fn asks_for(&self, decisions: usize) {
        self.turn.iter().for_each(|turn| turn.weigh(decisions));
    }

    /// Takes note of the decisions that it got.
    pub(crate) fn got<'a>(&self, answers: impl IntoIterator<Item = &'a Answered>) {
        if let Some(turn) = &self.turn {
            let denied = answers.into_iter().filter(|answer| !answer.decision.allowed).count();
            turn.denied(denied as u64);
        }
    }

    /// Nobody in particular, who may do everything: where the file lists nobody, and nobody looked who it is.
    pub fn anyone() -> Self {
        Self::new(Principal::anyone(), Rights::All)
    }

    /// Nobody in particular, who may do nothing.
    pub fn nobody() -> Self {
        Self::new(Principal::anyone(), Rights::Listed(Arc::default()))
    }

    /// Whoever sent a request to this engine. Where nobody looked who it is, though the file lists who may ask, it may
    /// do nothing: a door that was put together without [`Identify`](super::Identify) is shut, not open.
    pub fn of(extensions: &http::Extensions, engine: &Engine) -> Self {
        let unseen = || if engine.file().access.is_some() { Self::nobody() } else { Self::anyone() };
        extensions.get().cloned().unwrap_or_else(unseen)
    }

    /// Its identity.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Whether it may use this door for this policy and key; if not, a refusal that says so.
    pub fn may(&self, door: Door, policy: &str, key: &[u8]) -> Result<(), Refusal> {
        if self.allows(door, policy, key) {
            return Ok(());
        }
        self.may_use(door)?;
        // The key is not repeated: refusals are logged.
        let policy = policy.escape_debug();
        let why = format!("{} may not use {door:?} for this key of policy `{policy}`", self.said());
        Err(Refusal::Forbidden(why))
    }

    /// The same where nobody asks why not.
    pub fn allows(&self, door: Door, policy: &str, key: &[u8]) -> bool {
        match &self.rights {
            Rights::Listed(grants) => grants.iter().any(|grant| grant.allows(door, policy, key)),
            _ => self.may_use(door).is_ok(),
        }
    }

    /// The same for every key that a request is counted for.
    pub fn may_each(&self, door: Door, policy: &str, keys: &[&[u8]]) -> Result<(), Refusal> {
        keys.iter().try_for_each(|key| self.may(door, policy, key))
    }

    /// Whether it may use this door at all: for what is of no policy, and for leases, which are their owner's.
    pub fn may_use(&self, door: Door) -> Result<(), Refusal> {
        let why = match (&self.rights, door) {
            (Rights::Open { monitor: false, .. }, Door::Monitor) => NO_MONITOR.into(),
            (Rights::Open { reserve: false, .. }, Door::Reserve) => NO_FLEET.into(),
            (Rights::Listed(grants), _) if !grants.iter().any(|grant| grant.opens(door)) => {
                format!("{} may not use {door:?}", self.said())
            }
            _ => return Ok(()),
        };
        Err(Refusal::Forbidden(why))
    }

    /// Why a request to this path needs a secret that the caller did not show.
    pub(super) fn lacks_secret_for(&self, path: &str) -> Option<&'static str> {
        match self.rights {
            Rights::Open { monitor: false, .. } if path.starts_with("/throttlekit.v1.Monitor/") => {
                Some(NO_MONITOR)
            }
            Rights::Open { reserve: false, .. } if path.starts_with("/throttlekit.v1.Fleet/") => {
                Some(NO_FLEET)
            }
            _ => None,
        }
    }

    fn said(&self) -> String {
        match self.principal.name() {
            "" => "a caller without a name".into(),
            name => format!("`{}`", name.escape_debug()),
        }
    }
}

const NO_MONITOR: &str = "the monitor wants the secret that the server was given, or, if it was given none, a caller on its machine";
const NO_FLEET: &str =
    "reserving wants the secret that the server was given, or, if it was given none, a caller on its machine";

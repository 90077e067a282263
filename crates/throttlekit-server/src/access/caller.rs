//! The caller of a request and its rights.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use throttlekit::store::StoreError;

use super::Principal;
use super::refusals::{Reason, Refusals};
use crate::engine::{Answered, Engine, Refusal};
use crate::listen::Peer;
use crate::policy::{Endpoint, Grant, GrantSpec};
use crate::share::{OpenStream, TooManyWatchers, Turn};

/// Who asks, and what it may. Put into a request's extensions by [`Identify`](super::Identify).
#[derive(Clone, Debug)]
pub struct Caller {
    rights: Rights,
    address: Option<SocketAddr>,
    /// Of the request that it sent.
    turn: Option<Arc<Turn>>,
    /// Whether there was none for that request.
    crowded: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Rights {
    /// Everything.
    All(Principal),
    /// Everything but, perhaps, what shows or lends a lot at once.
    Open { principal: Principal, monitor: bool, reserve: bool, refusals: Arc<Refusals> },
    /// What is listed.
    Listed(Arc<Allowed>),
}

/// A principal and what it is allowed. One allocation for all its callers: to identify one touches little memory, which
/// counts where there are thousands.
#[derive(Debug)]
pub(super) struct Allowed {
    principal: Principal,
    grants: Box<[Grant]>,
    weight: NonZeroU32,
    refusals: Arc<Refusals>,
}

impl Allowed {
    pub(super) fn of(
        principal: Principal,
        specs: &[GrantSpec],
        refusals: &Arc<Refusals>,
    ) -> Result<Self, String> {
        let grants = specs.iter().map(Grant::of).collect::<Result<_, _>>()?;
        Ok(Self { principal, grants, weight: NonZeroU32::MIN, refusals: refusals.clone() })
    }

    /// The same, counting for so much beside others.
    pub(super) fn weighing(self, weight: NonZeroU32) -> Self {
        Self { weight, ..self }
    }

    pub(super) fn name(&self) -> &str {
        self.principal.name()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.grants.is_empty()
    }
}

impl Caller {
    pub(super) fn new(rights: Rights, peer: Option<&Peer>) -> Self {
        Self { rights, address: peer.map(|peer| peer.address), turn: None, crowded: false }
    }

    /// What it counts for beside others, where they share the server.
    pub(crate) fn weight(&self) -> NonZeroU32 {
        match &self.rights {
            Rights::All(_) | Rights::Open { .. } => NonZeroU32::MIN,
            Rights::Listed(allowed) => allowed.weight,
        }
    }

    /// Gives it the turn of its request.
    pub(crate) fn takes(&mut self, turn: Turn) {
        self.turn = Some(Arc::new(turn));
    }

    /// Says that there was no turn for its request.
    pub(crate) fn gets_no_turn(&mut self) {
        self.crowded = true;
    }

    /// Room for one more stream of denials, where callers share the server; an error if it has too many.
    pub(crate) fn watches(&self) -> Result<Option<OpenStream>, TooManyWatchers> {
        self.turn.as_ref().map(|turn| turn.watcher().ok_or(TooManyWatchers)).transpose()
    }

    /// The same without the turn of its request: for streams, which outlast it.
    pub(crate) fn without_turn(self) -> Self {
        Self { turn: None, ..self }
    }

    /// Whether its request is to be answered without a decision, as too much of it is under way.
    pub(crate) fn is_crowded(&self) -> bool {
        self.crowded
    }

    /// Says how many decisions its request asks for.
    pub(crate) fn asks_for(&self, decisions: usize) {
        self.turn.iter().for_each(|turn| turn.weigh(decisions));
    }

    /// The turn of its request, where callers share the server.
    pub(crate) fn turn(&self) -> Option<&Turn> {
        self.turn.as_deref()
    }

    /// Waits for the turn of the next `decisions` decisions of its request.
    pub(crate) async fn turn_for(&self, decisions: usize) -> Result<(), Refusal> {
        match &self.turn {
            Some(turn) if !turn.next(decisions).await => Err(Refusal::Store(StoreError::Overloaded)),
            _ => Ok(()),
        }
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
        Self::new(Rights::All(Principal::anyone()), None)
    }

    /// Nobody in particular, who may do nothing.
    pub fn nobody() -> Self {
        let (principal, grants, refusals) = (Principal::anyone(), Box::default(), Arc::default());
        let nothing = Allowed { principal, grants, weight: NonZeroU32::MIN, refusals };
        Self::new(Rights::Listed(Arc::new(nothing)), None)
    }

    /// Whoever sent a request to this engine. Where nobody looked who it is, though the file lists who may ask, it may
    /// do nothing: an API that was put together without [`Identify`](super::Identify) is shut, not open.
    pub fn of(extensions: &http::Extensions, engine: &Engine) -> Self {
        let unseen = || if engine.file().access.is_some() { Self::nobody() } else { Self::anyone() };
        extensions.get().cloned().unwrap_or_else(unseen)
    }

    /// Its identity.
    pub fn principal(&self) -> &Principal {
        match &self.rights {
            Rights::All(principal) | Rights::Open { principal, .. } => principal,
            Rights::Listed(allowed) => &allowed.principal,
        }
    }

    /// Checks whether it may use this endpoint for this policy and key. If not, returns a refusal that says so, and
    /// counts it.
    pub fn may(&self, endpoint: Endpoint, policy: &str, key: &[u8]) -> Result<(), Refusal> {
        if self.allows(endpoint, policy, key) {
            return Ok(());
        }
        self.may_use(endpoint)?;
        // The key is not repeated: refusals are logged.
        let policy = policy.escape_debug();
        Err(self.refused(
            endpoint,
            format!("{} may not use {endpoint:?} for this key of policy `{policy}`", self.said()),
        ))
    }

    /// The same where nobody asks why not.
    pub fn allows(&self, endpoint: Endpoint, policy: &str, key: &[u8]) -> bool {
        match &self.rights {
            Rights::Listed(allowed) => allowed.grants.iter().any(|grant| grant.allows(endpoint, policy, key)),
            _ => self.why_not(endpoint).is_none(),
        }
    }

    /// The same for every key that a request is counted for.
    pub fn may_each(&self, endpoint: Endpoint, policy: &str, keys: &[&[u8]]) -> Result<(), Refusal> {
        keys.iter().try_for_each(|key| self.may(endpoint, policy, key))
    }

    /// Checks whether it may use this endpoint at all: for what is of no policy, and for leases, which are their
    /// owner's. If not, returns a refusal that says so, and counts it.
    pub fn may_use(&self, endpoint: Endpoint) -> Result<(), Refusal> {
        self.why_not(endpoint).map_or(Ok(()), |why| Err(self.refused(endpoint, why)))
    }

    fn why_not(&self, endpoint: Endpoint) -> Option<String> {
        match (&self.rights, endpoint) {
            (Rights::Open { monitor: false, .. }, Endpoint::Monitor) => Some(NO_MONITOR.into()),
            (Rights::Open { reserve: false, .. }, Endpoint::Reserve) => Some(NO_FLEET.into()),
            (Rights::Listed(allowed), _) if !allowed.grants.iter().any(|grant| grant.opens(endpoint)) => {
                Some(format!("{} may not use {endpoint:?}", self.said()))
            }
            _ => None,
        }
    }

    fn refused(&self, endpoint: Endpoint, why: String) -> Refusal {
        let (refusals, reason) = match &self.rights {
            Rights::All(_) => return Refusal::Forbidden(why),
            Rights::Open { refusals, .. } => (refusals, Reason::NoSecret),
            Rights::Listed(allowed) => (&allowed.refusals, Reason::Forbidden),
        };
        refusals.note(reason, self.address, self.principal().name(), &format!("{endpoint:?}"));
        Refusal::Forbidden(why)
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
        match self.principal().name() {
            "" => "a caller without a name".into(),
            name => format!("`{}`", name.escape_debug()),
        }
    }
}

const NO_MONITOR: &str = "the monitor needs a secret: start the server with --monitor-secret-file or \
     THROTTLEKIT_MONITOR_SECRET and send it as `authorization: Bearer …`, list callers under `access`, or start it with \
     --trust-loopback to trust its machine";
const NO_FLEET: &str = "reserving needs a secret: start the server with --fleet-secret-file or \
     THROTTLEKIT_FLEET_SECRET and send it as `authorization: Bearer …`, list callers under `access`, or start it with \
     --trust-loopback to trust its machine";

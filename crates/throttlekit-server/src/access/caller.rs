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

/// The caller of a request and its rights. Inserted into a request's extensions by [`Identify`](super::Identify).
#[derive(Clone, Debug)]
pub struct Caller {
    rights: Rights,
    address: Option<SocketAddr>,
    /// Turn of its request.
    turn: Option<Arc<Turn>>,
    /// True if its request got no turn.
    crowded: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Rights {
    /// All rights.
    All(Principal),
    /// All rights, except perhaps for the monitor and reservations.
    Open { principal: Principal, monitor: bool, reserve: bool, refusals: Arc<Refusals> },
    /// The rights in the list.
    Listed(Arc<Allowed>),
}

/// A principal and its rights. One allocation is shared by all its callers: identification touches little memory, which
/// matters with thousands of principals.
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

    /// Sets its weight relative to other callers.
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

    /// Returns its weight relative to other callers, where callers share the server.
    pub(crate) fn weight(&self) -> NonZeroU32 {
        match &self.rights {
            Rights::All(_) | Rights::Open { .. } => NonZeroU32::MIN,
            Rights::Listed(allowed) => allowed.weight,
        }
    }

    /// Sets the turn of its request.
    pub(crate) fn takes(&mut self, turn: Turn) {
        self.turn = Some(Arc::new(turn));
    }

    /// Records that there was no turn for its request.
    pub(crate) fn gets_no_turn(&mut self) {
        self.crowded = true;
    }

    /// Opens one more stream of denials, where callers share the server. Returns an error if the caller has too many.
    pub(crate) fn watches(&self) -> Result<Option<OpenStream>, TooManyWatchers> {
        self.turn.as_ref().map(|turn| turn.watcher().ok_or(TooManyWatchers)).transpose()
    }

    /// Removes the turn of its request: for streams, which outlast it.
    pub(crate) fn without_turn(self) -> Self {
        Self { turn: None, ..self }
    }

    /// Checks whether its request must be rejected without a decision, since its caller has too much in progress.
    pub(crate) fn is_crowded(&self) -> bool {
        self.crowded
    }

    /// Sets the number of decisions that its request needs.
    pub(crate) fn asks_for(&self, decisions: usize) {
        self.turn.iter().for_each(|turn| turn.weigh(decisions));
    }

    /// Returns the turn of its request, where callers share the server.
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

    /// Records the decisions that it got.
    pub(crate) fn got<'a>(&self, answers: impl IntoIterator<Item = &'a Answered>) {
        if let Some(turn) = &self.turn {
            let denied = answers.into_iter().filter(|answer| !answer.decision.allowed).count();
            turn.denied(denied as u64);
        }
    }

    /// Creates an anonymous caller with all rights, for a file that lists nobody and an API without identification.
    pub fn anyone() -> Self {
        Self::new(Rights::All(Principal::anyone()), None)
    }

    /// Creates an anonymous caller without rights.
    pub fn nobody() -> Self {
        let (principal, grants, refusals) = (Principal::anyone(), Box::default(), Arc::default());
        let nothing = Allowed { principal, grants, weight: NonZeroU32::MIN, refusals };
        Self::new(Rights::Listed(Arc::new(nothing)), None)
    }

    /// Returns the caller that sent a request to this engine. Without identification the caller has no rights if the
    /// file lists principals: an API that was built without [`Identify`](super::Identify) is closed, not open.
    pub fn of(extensions: &http::Extensions, engine: &Engine) -> Self {
        let unseen = || if engine.file().access.is_some() { Self::nobody() } else { Self::anyone() };
        extensions.get().cloned().unwrap_or_else(unseen)
    }

    /// Returns the address that it connected from, if it is known.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Returns its identity.
    pub fn principal(&self) -> &Principal {
        match &self.rights {
            Rights::All(principal) | Rights::Open { principal, .. } => principal,
            Rights::Listed(allowed) => &allowed.principal,
        }
    }

    /// Checks whether it may use this endpoint for this policy and key. If not, returns a refusal and counts it.
    pub fn may(&self, endpoint: Endpoint, policy: &str, key: &[u8]) -> Result<(), Refusal> {
        if self.allows(endpoint, policy, key) {
            return Ok(());
        }
        self.may_use(endpoint)?;
        // Leaves out the key: refusals are logged.
        let policy = policy.escape_debug();
        Err(self.refused(
            endpoint,
            format!("{} may not use {endpoint:?} for this key of policy `{policy}`", self.said()),
        ))
    }

    /// Checks the same without counting a refusal.
    pub fn allows(&self, endpoint: Endpoint, policy: &str, key: &[u8]) -> bool {
        match &self.rights {
            Rights::Listed(allowed) => allowed.grants.iter().any(|grant| grant.allows(endpoint, policy, key)),
            _ => self.why_not(endpoint).is_none(),
        }
    }

    /// Checks the same for every key that a request is counted for.
    pub fn may_each(&self, endpoint: Endpoint, policy: &str, keys: &[&[u8]]) -> Result<(), Refusal> {
        keys.iter().try_for_each(|key| self.may(endpoint, policy, key))
    }

    /// Checks whether it may use this endpoint at all: for requests without a policy, and for leases, which belong to
    /// their owner. If not, returns a refusal and counts it.
    pub fn may_use(&self, endpoint: Endpoint) -> Result<(), Refusal> {
        self.why_not(endpoint).map_or(Ok(()), |why| Err(self.refused(endpoint, why)))
    }

    /// Checks whether it may use this endpoint for all policies and all keys: for requests that concern the whole
    /// server. If not, returns a refusal and counts it.
    pub fn may_everywhere(&self, endpoint: Endpoint) -> Result<(), Refusal> {
        self.may_use(endpoint)?;
        match &self.rights {
            Rights::Listed(allowed) if !allowed.grants.iter().any(|grant| grant.covers_all(endpoint)) => {
                let why = format!("{} may not use {endpoint:?} for all policies and keys", self.said());
                Err(self.refused(endpoint, why))
            }
            _ => Ok(()),
        }
    }

    fn why_not(&self, endpoint: Endpoint) -> Option<String> {
        match (&self.rights, endpoint) {
            (Rights::Open { monitor: false, .. }, Endpoint::Monitor) => Some(NO_MONITOR.into()),
            (Rights::Open { reserve: false, .. }, Endpoint::Reserve) => Some(NO_FLEET.into()),
            (Rights::Open { .. }, Endpoint::Admin) => Some(NO_ADMIN.into()),
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

    /// Returns the reason why a request to this path needs a secret that the caller did not send.
    pub(super) fn lacks_secret_for(&self, path: &str) -> Option<&'static str> {
        match self.rights {
            Rights::Open { monitor: false, .. } if path.starts_with("/throttlekit.v1.Monitor/") => {
                Some(NO_MONITOR)
            }
            Rights::Open { reserve: false, .. }
                if path.starts_with("/throttlekit.v1.Fleet/") || path == "/v1/reserve" =>
            {
                Some(NO_FLEET)
            }
            _ => None,
        }
    }

    fn said(&self) -> String {
        match self.principal().name() {
            "" => "an anonymous caller".into(),
            name => format!("`{}`", name.escape_debug()),
        }
    }
}

const NO_MONITOR: &str = "the monitor needs a secret: start the server with --monitor-secret-file or \
     THROTTLEKIT_MONITOR_SECRET and send it as `authorization: Bearer …`, list callers under `access`, or start it with \
     --trust-loopback to trust its machine";
const NO_ADMIN: &str =
    "actions of operators need an access list: grant the endpoint `admin` to a caller under `access`";
const NO_FLEET: &str = "reserving needs a secret: start the server with --fleet-secret-file or \
     THROTTLEKIT_FLEET_SECRET and send it as `authorization: Bearer …`, list callers under `access`, or start it with \
     --trust-loopback to trust its machine";

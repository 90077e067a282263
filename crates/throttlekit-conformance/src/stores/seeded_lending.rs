//! The bugs of stores in leasing.

use throttlekit::rate::Timestamp;
use throttlekit::store::{LeaseRequest, LeaseReturn, Leased, StoreError};
use throttlekit_core::lease::{Epoch, Return, Want};
use throttlekit_core::rate::{Limit, Rule, Settle, State};

use super::reference::CoreStates;
use super::seeded::StoreBug;

/// Decides a lease request as a store with this bug does.
pub(super) fn lend(
    known: &mut CoreStates,
    bug: StoreBug,
    ask: &LeaseRequest<'_>,
    now: Timestamp,
) -> Result<Leased, StoreError> {
    let (authority, limit) = (ask.authority()?, ask.form.limit());
    let state = known.state(ask.key);
    let Want { wants, least, share } = ask.want;
    let want = match bug {
        StoreBug::ShareIgnored => Want { share: 1, ..ask.want },
        StoreBug::LeastIgnored => Want { least: 1, ..ask.want },
        StoreBug::ShareRoundedDown => {
            let left = limit.decide(&state, 0, now).remaining;
            Want { wants: wants.min((left / share.max(1)).max(least)), ..ask.want }
        }
        _ => ask.want,
    };
    let mut loan = authority.look(&state, want, now);
    let sought = wants.max(least).max(1);
    let across = loan.granted > limit.decide(&state, 0, now).remaining;
    match bug {
        StoreBug::LendsMoreThanIsLeft if loan.granted > 0 => {
            loan.granted = loan.granted.max(sought.min(limit.units()));
        }
        StoreBug::LendsNothingAcrossTheEdge if across => loan.granted = 0,
        StoreBug::LendsAllAcrossTheEdge if across => loan.granted = sought.min(limit.cost_max()),
        StoreBug::LendsAllOrNothing if loan.granted < sought => loan.granted = 0,
        StoreBug::EpochByClock => loan.epoch = epoch_by_clock(limit, loan.epoch, now),
        _ => {}
    }
    let charged = if bug == StoreBug::LendsForFree { 0 } else { loan.granted };
    let charge = throttlekit::store::Charge { key: ask.key, form: ask.form, cost: charged };
    known.charge(&charge, now);
    Ok(Leased { now, loan })
}

/// Returns units as a store with this bug does.
pub(super) fn take_back(
    known: &mut CoreStates,
    bug: StoreBug,
    given: &LeaseReturn<'_>,
    now: Timestamp,
) -> Result<(), StoreError> {
    let state = known.state(given.key);
    let present = given.form.limit().mark(&state, now);
    match bug {
        StoreBug::ReturnCountsTwice => drop(known.returned.remove(&given.id)),
        StoreBug::ReturnsSeenOnlyIfTaken if Epoch(present.0) != given.back.epoch => return Ok(()),
        StoreBug::ReturnsSeenOnlyIfTaken if state == State::Fresh => return Ok(()),
        StoreBug::ReturnIntoAnyWindow => {
            let epoch = Epoch(present.0);
            return known.take_back(&LeaseReturn { back: Return { epoch, ..given.back }, ..*given }, now);
        }
        StoreBug::ReturnLost => return Ok(()),
        _ => {}
    }
    known.take_back(given, now)
}

fn epoch_by_clock(limit: &Limit, epoch: Epoch, now: Timestamp) -> Epoch {
    match limit {
        Limit::Window(_) => Epoch(limit.mark(&State::Fresh, now).0),
        _ => epoch,
    }
}

//! Slots that were acquired while a store's clock was ahead.

use std::time::Duration;

use throttlekit::clock::ManualClock;
use throttlekit::rate::Timestamp;
use throttlekit::store::{HeartbeatOutcome, LeaseId, Owner, SlotLease, SlotRequest, SlotStep, SlotStore};

use crate::difference::Difference;

const LIVES: Duration = Duration::from_secs(30);
const AHEAD: Duration = Duration::from_secs(86_400);
const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);
const MOST: u32 = 2;

/// Acquires both slots of a key while the clock is a day ahead; one holder dies, the other continues. Once the clock is
/// correct again, the dead holder's slot is freed within its lease, and the other's never is: there are never more live
/// holders than slots. Returns an error otherwise.
pub async fn slots_after_a_clock_was_ahead(
    store: &impl SlotStore,
    clock: &ManualClock,
    key: &str,
) -> Result<(), Difference> {
    let lease = |id: u128| SlotLease { key, lease: LeaseId(id), owner: Owner(id) };
    let held = async |id: u128| {
        let ask = SlotRequest { key, lease: LeaseId(id), owner: Owner(id), most: MOST, lives: LIVES };
        store.acquire(&ask).await.map(|answer| matches!(answer.step, SlotStep::Admit { .. }))
    };
    let expect = |what: &str, holds: bool| if holds { Ok(()) } else { Err(format!("{key}: {what}")) };
    let (dead, alive, next, last) = (1, 2, 3, 4);
    clock.set(START + AHEAD);
    expect("both slots are free", held(dead).await == Ok(true) && held(alive).await == Ok(true))?;
    clock.set(START);
    expect("neither is over when the clock is set back", held(next).await == Ok(false))?;
    let third = LIVES / 3;
    for _ in 0..2 {
        clock.advance(third);
        let heartbeat = store.heartbeat(&[lease(alive)], LIVES).await;
        expect(
            "a holder that sends heartbeats keeps its slot",
            matches!(heartbeat[..], [Ok(HeartbeatOutcome::Held(_))]),
        )?;
    }
    clock.set(START + (LIVES - Duration::from_micros(1)));
    expect("a lease lives as long as it was given", held(next).await == Ok(false))?;
    clock.set(START + LIVES);
    expect("the slot of the dead comes back within its lease", held(next).await == Ok(true))?;
    expect("the slot of the living does not", held(last).await == Ok(false))?;
    let heartbeat = store.heartbeat(&[lease(dead), lease(alive)], LIVES).await;
    Ok(expect(
        "each is told which",
        matches!(heartbeat[..], [Ok(HeartbeatOutcome::Lost), Ok(HeartbeatOutcome::Held(_))]),
    )?)
}

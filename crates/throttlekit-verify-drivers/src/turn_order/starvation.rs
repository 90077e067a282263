//! A caller of the least urgent class waits while urgent ones call again and again.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use anyhow::Result;
use futures_util::future::{Either, select};
use throttlekit_conformance::Dice;
use throttlekit_core::turn::BY_AGE_EVERY;
use throttlekit_proto::v1::ReleaseRequest;
use throttlekit_proto::v1::rate_limiter_client::RateLimiterClient;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tonic::Status;
use tonic::transport::Channel;

use super::callers::{Order, is_allowed, waits};
use super::waiting::Served;
use super::{Bug, ORDERED, Totals};
use crate::serving::channel;

const LEAST_URGENT: u32 = 2;
/// Long enough for the others to be in the queue again.
const HOLD: Duration = Duration::from_millis(3);
const ENDS_WITHIN: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Runs until the patient caller was served. Returns a violation if more turns than its position allows came first.
pub(super) async fn play(
    served: &Served,
    dice: &mut Dice,
    bug: Option<Bug>,
    totals: &mut Totals,
) -> Result<Vec<String>> {
    let Some(holder) = served.take_slot(ORDERED).await? else { return Ok(vec!["the slot is in use".into()]) };
    let (order, over) = (Order::default(), Arc::<AtomicBool>::default());
    let urgent = dice.between(3, 5) as usize;
    let mut callers = JoinSet::new();
    for number in 1..=urgent {
        callers.spawn(call_again(channel(served.grpc())?, number, order.clone(), over.clone()));
        served.until_waiting(ORDERED, number as u64).await?;
    }
    let patient = tokio::spawn(wait(channel(served.grpc())?, order.clone(), bug));
    let position = urgent + 1;
    served.until_waiting(ORDERED, position as u64).await?;
    totals.joined += position as u64;
    served.release(holder).await?;
    let most = BY_AGE_EVERY as usize * position;
    order.until(ENDS_WITHIN, |admitted| admitted.contains(&0) || admitted.len() > most).await;
    over.store(true, SeqCst);
    while callers.join_next().await.is_some() {}
    patient.abort();
    let admitted = order.admitted();
    totals.admitted += admitted.len() as u64;
    let turns = admitted.iter().position(|number| *number == 0).map_or(admitted.len() + 1, |place| place + 1);
    let mut violations = served.nothing_is_left(ORDERED).await?;
    if turns > most {
        violations.push(format!(
            "the caller that joined as number {position} left after {turns} turns, not {most}"
        ));
    }
    Ok(violations)
}

/// Gets the slot again and again.
async fn call_again(
    channel: Channel,
    number: usize,
    order: Order,
    over: Arc<AtomicBool>,
) -> Result<(), Status> {
    while !over.load(SeqCst) {
        get(channel.clone(), 0, number, &order).await?;
    }
    Ok(())
}

/// Gets the slot once. With the bug, it calls again after each turn of another.
async fn wait(channel: Channel, order: Order, bug: Option<Bug>) -> Result<(), Status> {
    loop {
        let turns = order.admitted().len();
        let another_turn = async {
            while bug != Some(Bug::PositionLost) || order.admitted().len() == turns {
                sleep(LOOK_EVERY).await;
            }
        };
        let got = get(channel.clone(), LEAST_URGENT, 0, &order);
        if let Either::Left((ended, _)) = select(pin!(got), pin!(another_turn)).await {
            return ended;
        }
    }
}

async fn get(channel: Channel, priority: u32, number: usize, order: &Order) -> Result<(), Status> {
    let mut client = RateLimiterClient::new(channel);
    let admitted = client.admit(waits(ORDERED, priority)).await?.into_inner();
    if !is_allowed(&admitted) {
        return Ok(());
    }
    order.add(number);
    sleep(HOLD).await;
    client.release(ReleaseRequest { lease_id: admitted.lease_id, ..ReleaseRequest::default() }).await?;
    Ok(())
}

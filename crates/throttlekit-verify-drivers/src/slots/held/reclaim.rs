//! The time until slots of dead holders come back, and the responses to holders that return too late.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use throttlekit::clock::{BootClock, Clock};
use throttlekit::rate::Timestamp;
use throttlekit::store::{
    HeartbeatOutcome, KeySpace, LeaseId, Owner, SlotLease, SlotRequest, SlotStep, SlotStore,
};
use throttlekit_conformance::Dice;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::engine::{AnyStore, Engine};
use super::member::{Post, Role};

const LIVES: Duration = Duration::from_secs(1);
/// The lease lifetime of holders that are stopped.
const ZOMBIE_LIVES: Duration = Duration::from_millis(500);
/// The slots of a killed holder.
const KEYS: u32 = 50;
const ME: Owner = Owner(1);
/// The maximum time between a holder's death and the return of its slot.
const BACK_MAX: Duration = LIVES.saturating_add(Duration::from_millis(100));
/// The number of attempts where slots took longer. A busy machine causes that now and then; a late store is
/// late each time.
const TRIES_MAX: u32 = 3;

pub(super) async fn run(
    engine: &Engine,
    killed: u64,
    zombies: u64,
    broken: &mut Vec<String>,
) -> Result<Value> {
    let store = engine.connect().await?;
    let mut dice = Dice::new(3);
    let (mut worst, mut sum) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..killed {
        let wait = LIVES * dice.below(100) as u32 / 100;
        let mut took = killed_holder(engine, &store, wait).await?;
        for _ in 1..TRIES_MAX {
            if took.iter().all(|took| *took <= BACK_MAX) {
                break;
            }
            took = killed_holder(engine, &store, wait).await?;
        }
        for took in took {
            (worst, sum) = (worst.max(took), sum + took);
        }
    }
    let slots = killed * u64::from(KEYS);
    let mut wrong = Vec::new();
    for _ in 0..zombies {
        wrong.extend(zombie(engine, &store).await?);
    }
    let (name, mean) = (&engine.name, sum / slots.max(1) as u32);
    println!(
        "{name}: {slots} slots of killed holders came back after {mean:?} on average, {worst:?} at the worst, of leases of \
         {LIVES:?}; {zombies} zombies were told that they are lost and refused, {} were not",
        wrong.len()
    );
    if worst > BACK_MAX {
        broken.push(format!("slots on {name}: a slot of a killed holder took {worst:?} to come back"));
    }
    broken.extend(wrong.into_iter().map(|what| format!("slots on {name}: {what}")));
    Ok(json!({
        "ttl_ms": LIVES.as_millis() as u64, "killed_holders": killed, "slots": slots,
        "worst_ms": worst.as_millis() as u64, "mean_ms": mean.as_millis() as u64, "zombies": zombies,
    }))
}

fn post(engine: &Engine, role: Role) -> Post {
    let policy = format!("reclaim-{}-{}", std::process::id(), BootClock.now().as_nanos());
    let log = std::env::temp_dir().join(format!("throttlekit-{policy}"));
    Post { role, engine: engine.clone(), policy, most: 1, lives: LIVES, log }
}

/// Kills a holder with slots of many keys. Returns the time until each came back.
async fn killed_holder(engine: &Engine, store: &AnyStore, wait: Duration) -> Result<Vec<Duration>> {
    let post = post(engine, Role::Holder(KEYS));
    let mut member = post.start()?;
    written(&post, "held").await?;
    sleep(wait).await;
    member.kill();
    let died = BootClock.now();
    let mut waiting = JoinSet::new();
    for key in 0..KEYS {
        let key = key.to_string();
        let key = KeySpace::slots("tk", &post.policy).key(key.as_bytes(), key.as_bytes());
        waiting.spawn(comes_back(store.clone(), key, died));
    }
    let mut took = Vec::new();
    while let Some(one) = waiting.join_next().await {
        took.push(one??);
    }
    let _ = std::fs::remove_file(&post.log);
    Ok(took)
}

/// Retries after the wait of each denial until the slot is granted. Returns the time since its holder died.
async fn comes_back(store: AnyStore, key: String, died: Timestamp) -> Result<Duration> {
    let lease = LeaseId(u128::from(BootClock.now().as_nanos()));
    loop {
        let ask = SlotRequest { key: &key, lease, owner: ME, most: 1, lives: LIVES };
        match store.acquire(&ask).await?.step {
            SlotStep::Admit { .. } => {
                let took = BootClock.now().since(died);
                store.release(&[SlotLease { key: &key, lease, owner: ME }]).await.remove(0)?;
                return Ok(took);
            }
            SlotStep::Deny(full) => sleep(full.room_in.unwrap_or(LIVES)).await,
        }
    }
}

/// Stops a holder until another has its slot, then continues it. Returns the violations.
async fn zombie(engine: &Engine, store: &AnyStore) -> Result<Vec<String>> {
    let post = Post { lives: ZOMBIE_LIVES, ..post(engine, Role::Zombie) };
    let key = KeySpace::slots("tk", &post.policy).key(b"key", b"key");
    let member = post.start()?;
    let named = written(&post, "lease ").await?;
    let its = LeaseId(named.parse()?);
    let mut wrong = Vec::new();
    let mut must = |holds: bool, what: &str| {
        if !holds {
            wrong.push(what.to_owned());
        }
    };
    let foreign = store.release(&[SlotLease { key: &key, lease: its, owner: ME }]).await.remove(0)?;
    must(!foreign, "a foreign release was not refused");
    must(store.occupancy(&[&key]).await?[0].held == 1, "a foreign release freed a slot");
    let mine = SlotLease { key: &key, lease: LeaseId(its.0 ^ 1), owner: ME };
    let ask = SlotRequest { key: &key, lease: mine.lease, owner: ME, most: 1, lives: ZOMBIE_LIVES };
    sleep(ZOMBIE_LIVES + ZOMBIE_LIVES / 5).await;
    must(
        matches!(store.acquire(&ask).await?.step, SlotStep::Deny(_)),
        "a lease with heartbeats was not kept",
    );
    member.signal("STOP")?;
    sleep(ZOMBIE_LIVES + ZOMBIE_LIVES / 5).await;
    must(matches!(store.acquire(&ask).await?.step, SlotStep::Admit { .. }), "a stopped holder kept its slot");
    member.signal("CONT")?;
    written(&post, "heartbeat lost").await?;
    let told = written(&post, "release ").await?;
    must(told == "false", "a zombie's release freed a slot");
    must(store.occupancy(&[&key]).await?[0].held == 1, "a zombie took another's slot away");
    must(
        matches!(store.heartbeat(&[mine], ZOMBIE_LIVES).await[..], [Ok(HeartbeatOutcome::Held(_))]),
        "the slot of another was lost",
    );
    store.release(&[mine]).await.remove(0)?;
    let _ = std::fs::remove_file(&post.log);
    Ok(wrong)
}

/// Waits until a member has written a line with this prefix. Returns the rest of it.
async fn written(post: &Post, begins: &str) -> Result<String> {
    for _ in 0..5_000 {
        let log = post.read();
        if let Some(rest) = log.lines().find_map(|line| line.strip_prefix(begins)) {
            return Ok(rest.to_owned());
        }
        sleep(Duration::from_millis(2)).await;
    }
    ensure!(false, "a member did not write {begins:?} in time");
    Ok(String::new())
}

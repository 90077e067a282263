//! Client processes that work in the slots of one key while they are killed and stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use throttlekit::clock::{BootClock, Clock};
use throttlekit::rate::Timestamp;
use throttlekit::store::{KeySpace, SlotStore};
use throttlekit_conformance::Dice;
use tokio::time::sleep;

use super::engine::{AnyStore, Engine};
use super::judge::{Worked, worked};
use super::member::{Member, Post, Role};

const MOST: u32 = 3;
const MEMBERS: usize = 4;
const LIVES: Duration = Duration::from_millis(500);
/// The maximum time of a seeded run: it is over when the bug shows.
const SEEDED: Duration = Duration::from_secs(15);

/// The observations of a run.
struct FaultRun {
    worked: Worked,
    counted: u32,
    samples: u64,
    killed: u64,
    stopped: u64,
    leaked: u32,
}

pub(super) async fn run(engine: &Engine, seconds: u64, broken: &mut Vec<String>) -> Result<Value> {
    let FaultRun { worked, counted, samples, killed, stopped, leaked } =
        run_with_faults(engine, Role::Worker, Duration::from_secs(seconds)).await?;
    let seeded = run_with_faults(engine, Role::Unfenced, SEEDED).await?.worked.at_once;
    let name = &engine.name;
    println!(
        "{name}: {MEMBERS} processes, {MOST} slots of {LIVES:?}: {} worked in, {} stopped by the fence; {killed} killed, \
         {stopped} stopped for longer than a lease; at most {} worked at once, {counted} counted in {samples} samples; \
         {leaked} leaked; without the fence {seeded} worked at once",
        worked.slots, worked.fenced, worked.at_once
    );
    let mut must = |holds: bool, what: String| {
        if !holds {
            broken.push(format!("slots on {name}: {what}"));
        }
    };
    must(worked.at_once <= MOST, format!("{} worked at once in {MOST} slots", worked.at_once));
    must(counted <= MOST, format!("{counted} counted of {MOST} slots"));
    must(leaked == 0, format!("{leaked} leaked"));
    must(seeded > MOST, "blind to work that goes on past the fence".into());
    must(worked.slots > 10 && samples > 20 && killed > 0 && stopped > 0, "too little happened".into());
    Ok(json!({
        "processes": MEMBERS, "slots": MOST, "ttl_ms": LIVES.as_millis() as u64, "worked_in": worked.slots,
        "fenced": worked.fenced, "killed": killed, "stopped": stopped, "worked_at_once": worked.at_once,
        "counted_max": counted, "samples": samples, "leaked": leaked, "worked_at_once_unfenced": seeded,
    }))
}

async fn run_with_faults(engine: &Engine, role: Role, lasts: Duration) -> Result<FaultRun> {
    let post = post(engine, role);
    let _ = std::fs::remove_file(&post.log);
    let store = engine.connect().await?;
    let key: Arc<str> = KeySpace::slots("tk", &post.policy).key(b"key", b"key").into();
    let watch = Watch::start(store.clone(), key.clone());
    let mut members = (0..MEMBERS).map(|_| post.start()).collect::<Result<Vec<_>>>()?;
    let (killed, stopped) = inject_faults(&post, &mut members, lasts).await?;
    // Killed, some with slots: their leases expire.
    drop(members);
    sleep(LIVES + LIVES / 10).await;
    let leaked = store.occupancy(&[&key]).await?[0].held;
    let (counted, samples) = watch.end().await;
    let worked = worked(&post.read());
    let _ = std::fs::remove_file(&post.log);
    Ok(FaultRun { worked, counted, samples, killed, stopped, leaked })
}

fn post(engine: &Engine, role: Role) -> Post {
    let policy = format!("faults-{}-{}", std::process::id(), BootClock.now().as_nanos());
    let log = std::env::temp_dir().join(format!("throttlekit-{policy}"));
    Post { role, engine: engine.clone(), policy, most: MOST, lives: LIVES, log }
}

/// Kills members and stops them, several at a time. Returns the number killed, and the number stopped for
/// longer than a lease lives.
async fn inject_faults(post: &Post, members: &mut [Member], lasts: Duration) -> Result<(u64, u64)> {
    let (mut dice, begun) = (Dice::new(7), BootClock.now());
    let mut stopped_until: Vec<Option<Timestamp>> = vec![None; members.len()];
    let (mut killed, mut stopped) = (0, 0);
    while BootClock.now().since(begun) < lasts {
        sleep(Duration::from_millis(dice.between(20, 120))).await;
        let now = BootClock.now();
        for (member, until) in members.iter().zip(&mut stopped_until) {
            if until.take_if(|until| *until <= now).is_some() {
                member.signal("CONT")?;
            }
        }
        // A seeded bug has shown.
        if post.role == Role::Unfenced && worked(&post.read()).at_once > MOST {
            break;
        }
        let member = dice.below(members.len() as u64) as usize;
        if stopped_until[member].is_some() {
            continue;
        }
        if post.role == Role::Worker && dice.once_in(3) {
            members[member].kill();
            members[member] = post.start()?;
            killed += 1;
        } else {
            let length = LIVES * dice.between(2, 25) as u32 / 10;
            members[member].signal("STOP")?;
            stopped_until[member] = Some(now + length);
            stopped += u64::from(length > LIVES);
        }
    }
    Ok((killed, stopped))
}

/// Polls the number of slots that the store reports as held.
struct Watch {
    over: Arc<AtomicBool>,
    most: Arc<AtomicU32>,
    samples: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<()>,
}

impl Watch {
    fn start(store: AnyStore, key: Arc<str>) -> Self {
        let (over, most, samples) =
            (Arc::<AtomicBool>::default(), Arc::<AtomicU32>::default(), Arc::<AtomicU64>::default());
        let seen = (over.clone(), most.clone(), samples.clone());
        let task = tokio::spawn(async move {
            let (over, most, samples) = seen;
            while !over.load(SeqCst) {
                if let Ok(seen) = store.occupancy(&[&key]).await {
                    most.fetch_max(seen[0].held, SeqCst);
                    samples.fetch_add(1, SeqCst);
                }
                sleep(Duration::from_millis(2)).await;
            }
        });
        Self { over, most, samples, task }
    }

    async fn end(self) -> (u32, u64) {
        self.over.store(true, SeqCst);
        let _ = self.task.await;
        (self.most.load(SeqCst), self.samples.load(SeqCst))
    }
}

//! Cost of an attack for other clients: a server in a separate process, one honest client, one attacker, in turns.
//!
//! `cargo xtask verify abuse` runs it with optimisation. It is left out of ordinary test runs, which share their
//! processors with others and so can say nothing about the time that requests take.

use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use crate::assault::{ATTACKS, Attack};
use crate::client::Client;
use crate::measure::{GROWTH_MIB_MAX, P99_FLOOR, P99_TIMES_MAX, Peak, end_within, p99, round};
use crate::siege::{Besieged, HONEST, HOSTILE, Nice, Outcome, burnt, everybody, move_aside};

const HONEST_EVERY: Duration = Duration::from_millis(2);
/// An honest request that takes longer has failed.
const HONEST_WITHIN: Duration = Duration::from_secs(5);

/// The attack that goes on until there were as many keys as are promised.
const RANDOM_KEYS: &str = "random_keys";

struct Size {
    turns: u32,
    turn: Duration,
    keys: u64,
    /// For the keys that are left when the turns are over.
    keys_within: Duration,
    /// For everything.
    within: Duration,
}

const FULL: Size = Size {
    turns: 4,
    turn: Duration::from_millis(1_500),
    keys: 10_000_000,
    keys_within: Duration::from_secs(120),
    within: Duration::from_secs(720),
};
const SMALL: Size = Size {
    turns: 2,
    turn: Duration::from_millis(700),
    keys: 500_000,
    keys_within: Duration::from_secs(30),
    within: Duration::from_secs(240),
};

/// Honest times and attackers' deeds over all turns of one attack.
#[derive(Default)]
struct Turns {
    quiet: Vec<Duration>,
    lowest: Vec<Duration>,
    same: Vec<Duration>,
    control: Vec<Duration>,
    deeds: [Outcome; 2],
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures, so it wants the machine: cargo xtask verify abuse"]
async fn figures() {
    move_aside(std::process::id());
    let size = if std::env::var_os("ABUSE_SMALL").is_some() { SMALL } else { FULL };
    end_within(size.within);
    let server = Besieged::start("memory", &everybody());
    let client = server.client(HONEST[0].0).await;
    honest(&client, Duration::from_secs(1), &mut Vec::new()).await;
    let before = server.resident_mib();
    let peak = Peak::watch(server.process());
    let (mut figure, mut broken, mut keys) = (Map::new(), Vec::new(), 0);
    println!(
        "{:<19}{:>10}{:>10}{:>7}   {:>10}{:>10}{:>7}{:>12}{:>8}",
        "attack", "quiet p99", "attacked", "times", "burnt p99", "attacked", "times", "done", "MiB"
    );
    let named = std::env::var("ABUSE_ONLY").unwrap_or_default();
    let known = |name: &str| name.is_empty() || ATTACKS.iter().any(|attack| attack.name == name);
    assert!(named.split(',').all(known), "no such attack: {named}");
    let chosen = |attack: &&Attack| named.is_empty() || named.split(',').any(|name| name == attack.name);
    for attack in ATTACKS.iter().filter(chosen) {
        let turns = turns(&server, attack, &size).await;
        server.mend();
        if attack.name == RANDOM_KEYS {
            keys = turns.deeds.iter().map(Outcome::done).sum();
        }
        let values = judge(attack, turns, peak.so_far() - before, &mut broken);
        figure.insert(attack.name.into(), values);
    }
    if ATTACKS.iter().filter(chosen).any(|attack| attack.name == RANDOM_KEYS) {
        keys += more_keys(&server, &size, keys, &mut broken).await;
    }
    let grown = peak.so_far().max(server.resident_mib()) - before;
    println!("{keys} keys that nobody asked for before; at its largest {grown:.1} MiB larger than at first");
    if grown > GROWTH_MIB_MAX {
        broken.push(format!("the server grew by {grown:.1} MiB, and may by {GROWTH_MIB_MAX}"));
    }
    figure.insert("name".into(), "verify-abuse".into());
    figure.insert("optimised".into(), (!cfg!(debug_assertions)).into());
    figure.insert("grown_mib".into(), round(grown).into());
    figure.insert("keys".into(), keys.into());
    println!("figure: {}", Value::from(figure));
    assert!(broken.is_empty(), "not proved:\n  {}", broken.join("\n  "));
}

/// By turns, so that whatever else the machine does falls on all alike: quiet, an attacker with the lowest priority, one
/// with the same as everybody, and one that burns as much processor time as that one and attacks nobody.
async fn turns(server: &Besieged, attack: &Attack, size: &Size) -> Turns {
    let client = server.client(HONEST[0].0).await;
    let mut turns = Turns::default();
    let mix = format!("{}:{}", HOSTILE[0], attack.name);
    for _ in 0..size.turns {
        honest(&client, size.turn, &mut turns.quiet).await;
        let low = server.attacked(&mix, Nice::Lowest, size.turn);
        let low = meanwhile(&client, low, size.turn, &mut turns.lowest).await;
        let same = server.attacked(&mix, Nice::Same, size.turn);
        let same = meanwhile(&client, same, size.turn, &mut turns.same).await;
        meanwhile(&client, burnt(same.burnt, size.turn), size.turn, &mut turns.control).await;
        for (sum, deeds) in turns.deeds.iter_mut().zip([low, same]) {
            sum.add(deeds);
        }
    }
    turns
}

/// Honest requests while something else goes on.
async fn meanwhile(
    client: &Client,
    other: impl Future<Output = Outcome>,
    turn: Duration,
    times: &mut Vec<Duration>,
) -> Outcome {
    let asking = async {
        // Until the other process is there, and not after it is gone.
        sleep(Duration::from_millis(100)).await;
        honest(client, turn.saturating_sub(Duration::from_millis(200)), times).await;
    };
    tokio::join!(other, asking).0
}

/// Honest requests at a steady pace, whether or not those before were answered.
async fn honest(client: &Client, time: Duration, times: &mut Vec<Duration>) {
    let (mut due, end) = (interval(HONEST_EVERY), Instant::now() + time);
    due.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut asking = JoinSet::new();
    loop {
        let at = due.tick().await;
        if at >= end {
            break;
        }
        let client = client.clone();
        asking.spawn(async move {
            let answer = timeout(HONEST_WITHIN, client.check("chat", "honest")).await;
            assert!(matches!(answer, Ok(Ok(_))), "an honest request failed: {answer:?}");
            at.elapsed()
        });
    }
    times.extend(asking.join_all().await);
}

/// Goes on with invented keys until there were as many as were promised, or says that there were not.
async fn more_keys(server: &Besieged, size: &Size, so_far: u64, broken: &mut Vec<String>) -> u64 {
    let (mut keys, end) = (0, Instant::now() + size.keys_within);
    let mix = format!("{}:{RANDOM_KEYS}", HOSTILE[0]);
    while so_far + keys < size.keys {
        if Instant::now() >= end {
            broken.push(format!(
                "{} keys of {} within {:?}: run it on a machine that does nothing else, or with --small",
                so_far + keys,
                size.keys,
                size.keys_within
            ));
            break;
        }
        keys += server.attacked(&mix, Nice::Same, size.turn * 2).await.done();
    }
    keys
}

/// Prints and judges one attack. A time is compared with that of the same run without the attack.
fn judge(attack: &Attack, mut turns: Turns, grown: f64, broken: &mut Vec<String>) -> Value {
    let Attack { name, counts, .. } = attack;
    let [quiet, low, control, same] =
        [&mut turns.quiet, &mut turns.lowest, &mut turns.control, &mut turns.same].map(|times| p99(times));
    let times = |with: Duration, without: Duration| with.as_secs_f64() / without.max(P99_FLOOR).as_secs_f64();
    let (low_times, same_times) = (times(low, quiet), times(same, control));
    let [low_deeds, same_deeds] = turns.deeds;
    let done = low_deeds.done() + same_deeds.done();
    println!(
        "{name:<19}{quiet:>10.1?}{low:>10.1?}{low_times:>7.2}   {control:>10.1?}{same:>10.1?}{same_times:>7.2}\
         {done:>12}{grown:>8.1} {counts}"
    );
    for (times, whose) in [(low_times, "lowest"), (same_times, "same")] {
        if times > P99_TIMES_MAX {
            broken.push(format!(
                "{name}, {whose} priority: the slowest in a hundred took {times:.2} times as long"
            ));
        }
    }
    for (deeds, whose) in [(&low_deeds, "lowest"), (&same_deeds, "same")] {
        if deeds.done() == 0 {
            broken.push(format!(
                "{name}, {whose} priority: it did not happen, as the attacker came to no {counts}"
            ));
        }
        if deeds.wrong() > 0 {
            broken.push(format!("{name}, {whose} priority: {} times it was not fended off", deeds.wrong()));
        }
    }
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    json!({
        "lowest": {"quiet_p99_us": micros(quiet), "p99_us": micros(low), "times": round(low_times),
            "done": low_deeds.done(), "burnt_ms": micros(low_deeds.burnt) / 1_000},
        "same": {"burnt_p99_us": micros(control), "p99_us": micros(same), "times": round(same_times),
            "done": same_deeds.done(), "burnt_ms": micros(same_deeds.burnt) / 1_000},
        "counts": counts, "grown_mib": round(grown),
    })
}

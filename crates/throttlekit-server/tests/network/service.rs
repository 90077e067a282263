//! Fair service: what honest principals get while others attack the server by any mix of attacks.
//!
//! `cargo xtask verify fair-service` runs it against the program that is shipped, over memory and over Redis. The server
//! has processor cores of its own, and attackers have the lowest priority on the others: what slows honest clients down is
//! then the server's work for attackers.

use std::collections::BTreeMap;
use std::env;
use std::time::Duration;

use serde_json::{Value, json};
use throttlekit_conformance::Dice;
use throttlekit_proto::v1::{CheckManyRequest, CheckManyResponse, CheckResponse, Decision};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufStream};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use crate::assault::ATTACKS;
use crate::client::{Client, Failure};
use crate::cost;
use crate::measure::{GROWTH_MIB_MAX, P99_FLOOR, P99_TIMES_MAX, Peak, end_within, number, p99, round};
use crate::siege::{Besieged, HONEST, HOSTILE, Nice, Outcome, everybody, go_first, move_aside};

/// Minimum fraction of its undisturbed success rate that an honest principal keeps.
const SUCCESS_MIN: f64 = 0.9;
/// Maximum deviation of a share from its weight.
const SHARE_OFF_MAX: f64 = 0.1;
/// Each honest principal sends one request so often, and takes a later answer for none.
const EVERY: Duration = Duration::from_millis(5);
const WITHIN: Duration = Duration::from_secs(1);
/// Limit of each key of the policy `counted`, as in its file.
const COUNTED: usize = 30;
const QUIET: Duration = Duration::from_millis(600);
const ATTACKED: Duration = Duration::from_millis(1_300);
/// Attackers need so long to start.
const STARTS: Duration = Duration::from_millis(200);
/// Connections of the mix before are closed, and requests that do not come are given up, within so long.
const SETTLES: Duration = Duration::from_millis(2_500);
/// A moment of the machine's own hurts once; what the server does itself hurts each time.
const TRIES: u32 = 3;

/// Attackers and their attacks: `PRINCIPAL:ATTACK+ATTACK,…`.
fn mix(seed: u64) -> String {
    let mut dice = Dice::new(seed);
    let hostile = if seed.is_multiple_of(2) { 1 } else { HOSTILE.len() };
    let each = HOSTILE[..hostile].iter().map(|principal| {
        let attacks: Vec<_> =
            (0..=dice.below(3)).map(|_| ATTACKS[dice.below(ATTACKS.len() as u64) as usize].name).collect();
        format!("{principal}:{}", attacks.join("+"))
    });
    each.collect::<Vec<_>>().join(",")
}

/// Results of honest principals.
#[derive(Default)]
struct Got {
    sent: BTreeMap<&'static str, u64>,
    answered: BTreeMap<&'static str, u64>,
    times: Vec<Duration>,
    /// Why there was no answer.
    failures: BTreeMap<String, u64>,
    /// Decisions for the keys that are counted.
    counted: BTreeMap<&'static str, Vec<Decision>>,
}

impl Got {
    fn success(&self, principal: &str) -> f64 {
        let of = |counts: &BTreeMap<&'static str, u64>| counts.get(principal).copied().unwrap_or(0) as f64;
        of(&self.answered) / of(&self.sent).max(1.0)
    }

    /// Decisions that claim to be exact and are not: of each key so many are allowed, neither more nor fewer.
    fn mislabelled(&self) -> u64 {
        let of = |decisions: &Vec<Decision>| {
            let exact = |allowed: bool| {
                decisions.iter().filter(|one| one.allowed == allowed && one.guarantee == "exact").count()
            };
            let allowed = decisions.iter().filter(|one| one.allowed).count();
            let too_many = exact(true).saturating_sub(COUNTED);
            // What was allowed and not heard of counts as well.
            let unheard = self.failures.values().sum::<u64>() as usize;
            let too_few = if allowed + unheard < COUNTED { exact(false) } else { 0 };
            (too_many + too_few) as u64
        };
        self.counted.values().map(of).sum()
    }
}

/// Requests of every honest principal at a steady pace, whether or not those before were answered.
async fn honest(clients: &[(&'static str, Client)], round: &str, time: Duration) -> Got {
    let (mut due, end) = (interval(EVERY), Instant::now() + time);
    due.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (mut asking, mut got) = (JoinSet::new(), Got::default());
    for number in 0_u64.. {
        let at = due.tick().await;
        if at >= end {
            break;
        }
        let is_counted = number.is_multiple_of(3);
        for (principal, client) in clients {
            let (principal, client) = (*principal, client.clone());
            *got.sent.entry(principal).or_default() += 1;
            let (policy, key) = if is_counted {
                ("counted", format!("{round}-{principal}"))
            } else {
                ("chat", "honest".into())
            };
            asking.spawn(async move {
                let answer = timeout(WITHIN, client.check(policy, &key)).await;
                (principal, is_counted, at.elapsed(), told(answer.ok()))
            });
        }
    }
    for (principal, is_counted, time, answer) in asking.join_all().await {
        got.times.push(time);
        match answer {
            Ok(decision) => {
                *got.answered.entry(principal).or_default() += 1;
                if is_counted {
                    got.counted.entry(principal).or_default().push(decision);
                }
            }
            Err(why) => *got.failures.entry(why).or_default() += 1,
        }
    }
    got
}

fn told(answer: Option<Result<CheckResponse, Failure>>) -> Result<Decision, String> {
    match answer {
        None => Err("late".into()),
        Some(Ok(CheckResponse { decision: Some(decision), .. })) => Ok(decision),
        Some(Ok(_)) => Err("nothing decided".into()),
        Some(Err(Failure::Status(code))) => Err(format!("{code:?}")),
        Some(Err(Failure::Lost(why))) => Err(why),
    }
}

/// One mix, and what it did to others.
struct Round {
    success: f64,
    quiet: Duration,
    attacked: Duration,
    mislabelled: u64,
    failures: BTreeMap<String, u64>,
    deeds: Outcome,
}

impl Round {
    async fn run(server: &Besieged, mix: &str, name: &str) -> Self {
        let mut clients = Vec::new();
        for (principal, _) in HONEST {
            clients.push((principal, server.client(principal).await));
        }
        // What the mix before left behind.
        sleep(SETTLES).await;
        let mut quiet = honest(&clients, &format!("{name}-quiet"), QUIET).await;
        let asking = async {
            sleep(STARTS).await;
            honest(&clients, name, ATTACKED - STARTS).await
        };
        let (deeds, mut got) = tokio::join!(server.attacked(mix, Nice::Lowest, ATTACKED), asking);
        server.mend();
        let success =
            HONEST.map(|(principal, _)| got.success(principal) / quiet.success(principal).max(0.01));
        Self {
            success: success.into_iter().fold(f64::INFINITY, f64::min),
            quiet: p99(&mut quiet.times),
            attacked: p99(&mut got.times),
            mislabelled: quiet.mislabelled() + got.mislabelled(),
            failures: got.failures,
            deeds,
        }
    }

    fn times(&self) -> f64 {
        self.attacked.as_secs_f64() / self.quiet.max(P99_FLOOR).as_secs_f64()
    }

    fn broken(&self) -> Option<String> {
        let Self { success, mislabelled, failures, .. } = self;
        if *mislabelled > 0 {
            return Some(format!("{mislabelled} decisions say that they are exact and are not"));
        }
        if *success < SUCCESS_MIN {
            return Some(format!("{success:.3} of the success alone, {failures:?}"));
        }
        // Without optimisation everything takes longer.
        let late = !cfg!(debug_assertions) && self.times() > P99_TIMES_MAX;
        late.then(|| {
            format!("p99 {:.1?}, {:.1?} alone: {:.2} times", self.attacked, self.quiet, self.times())
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures, so it wants the machine: cargo xtask verify fair-service"]
async fn fair_service() {
    let (mixes, seed) = (number("FAIR_MIXES", 200), number("FAIR_SEED", 0));
    end_within(Duration::from_secs(60 + 12 * mixes));
    let redis = env::var("THROTTLEKIT_REDIS").expect("a Redis: cargo xtask verify fair-service starts one");
    move_aside(std::process::id());
    move_aside(process_of(&redis).await);
    if !go_first(true) {
        println!("clients share their core with the store: p99 over Redis includes its work");
    }
    let servers = [
        ("memory", Besieged::start("memory", &everybody())),
        ("redis", Besieged::start(&redis, &everybody())),
    ];
    let mut before = Vec::new();
    for (_, server) in &servers {
        honest(&[(HONEST[0].0, server.client(HONEST[0].0).await)], "first", Duration::from_secs(1)).await;
        before.push((server.resident_mib(), Peak::watch(server.process())));
    }
    let (mut broken, mut worst, mut deeds) = (Vec::new(), (f64::INFINITY, 0.0_f64), Outcome::default());
    println!("{:>5} {:<8}{:>9}{:>11}{:>11}{:>7}  mix", "", "store", "success", "alone p99", "p99", "times");
    for number in seed..seed + mixes {
        let (store, server) = &servers[(number / 2 % 2) as usize];
        let mix = env::var("FAIR_MIX").unwrap_or_else(|_| mix(number));
        let mut again = 0;
        let (round, why) = loop {
            let round = Round::run(server, &mix, &format!("{seed}-{number}-{again}")).await;
            deeds.add(round.deeds.clone());
            let why = round.broken();
            again += 1;
            // A label that is wrong once is wrong.
            if why.is_none() || round.mislabelled > 0 || again == TRIES {
                break (round, why);
            }
        };
        let times = round.times();
        println!(
            "{number:>5} {store:<8}{:>9.3}{:>11.1?}{:>11.1?}{times:>7.2}  {mix}",
            round.success, round.quiet, round.attacked
        );
        worst = (worst.0.min(round.success), worst.1.max(times));
        if let Some(why) = why {
            println!("      {why}");
            broken.push(format!("{number} on {store}: {why}\n    {mix}"));
        }
    }
    let grown = before.iter().map(|(before, peak)| peak.so_far() - before).fold(0.0, f64::max);
    if grown > GROWTH_MIB_MAX {
        broken.push(format!("a server grew by {grown:.1} MiB, and may by {GROWTH_MIB_MAX}"));
    }
    let idle = ATTACKS.iter().filter(|attack| deeds.deeds.get(attack.name).is_none_or(|deeds| deeds.0 == 0));
    let idle: Vec<_> = idle.map(|attack| attack.name).collect();
    if mixes >= 100 && !idle.is_empty() {
        broken.push(format!("attacks that did not take place: {}", idle.join(", ")));
    }
    // Clients that always send would leave the store nothing.
    go_first(false);
    let off = shares(&servers[1].1, &mut broken).await;
    let (among, wrong) = cost::of_principals().await;
    println!(
        "a check with 1,000 principals costs {among:.3} of one with one, a wrong token {wrong:.3} of a right one"
    );
    if !cfg!(debug_assertions) && among.max(wrong) > cost::TIMES_MAX {
        broken.push(format!(
            "knowing callers costs {:.3} times as much, and may {}",
            among.max(wrong),
            cost::TIMES_MAX
        ));
    }
    let mut figure = figure(mixes, worst, grown, off, broken.len());
    (figure["principals_cost"], figure["wrong_token_cost"]) = (among.into(), wrong.into());
    println!("figure: {figure}");
    assert!(broken.is_empty(), "not proved:\n  {}", broken.join("\n  "));
}

/// The process of a Redis server.
async fn process_of(redis: &str) -> u32 {
    let address = redis.trim_start_matches("redis://");
    let mut stream = BufStream::new(TcpStream::connect(address).await.expect("a Redis"));
    stream.write_all(b"INFO server\r\n").await.expect("a Redis");
    stream.flush().await.expect("a Redis");
    let mut lines = stream.lines();
    while let Some(line) = lines.next_line().await.expect("a Redis") {
        if let Some(process) = line.strip_prefix("process_id:") {
            return process.trim().parse().expect("a number");
        }
    }
    panic!("Redis names its process");
}

fn figure(mixes: u64, (success, times): (f64, f64), grown: f64, off: f64, broken: usize) -> Value {
    json!({
        "name": "verify-fair-service",
        "optimised": !cfg!(debug_assertions),
        "mixes": mixes,
        "attacks": ATTACKS.len(),
        "success_min": round(success),
        "p99_times_max": round(times),
        "grown_mib": round(grown),
        "share_off_max": round(off),
        "broken": broken,
    })
}

/// Everybody wants everything, over a store that cannot decide as much: how far the largest share is from its weight.
async fn shares(server: &Besieged, broken: &mut Vec<String>) -> f64 {
    const TIME: Duration = Duration::from_secs(8);
    let all = [HONEST[0], HONEST[1], HONEST[2], (HOSTILE[0], 1)];
    let mut running = JoinSet::new();
    for (index, (principal, _)) in all.into_iter().enumerate() {
        for _ in 0..2 {
            let client = server.client(principal).await;
            running.spawn(async move { (index, batches(&client, principal, TIME).await) });
        }
    }
    let mut decided = [0_u64; 4];
    for (index, decisions) in running.join_all().await {
        decided[index] += decisions;
    }
    let (sum, weights) =
        (decided.iter().sum::<u64>() as f64, all.iter().map(|(_, weight)| weight).sum::<u32>());
    let mut worst = 0.0_f64;
    for ((principal, weight), decisions) in all.into_iter().zip(decided) {
        let (share, due) = (decisions as f64 / sum, f64::from(weight) / f64::from(weights));
        println!(
            "{principal:<10} weight {weight}: {decisions:>8} decisions, a share of {share:.3}, {due:.3} by weight"
        );
        worst = worst.max((share / due - 1.0).abs());
    }
    if worst > SHARE_OFF_MAX {
        broken.push(format!("a share is {worst:.2} off its weight"));
    }
    worst
}

/// Batches, always sixteen at a time, which is more than the server decides at once; how many keys were decided. More of
/// them would each take longer, and the number that ends within the time would be coarse.
async fn batches(client: &Client, principal: &str, time: Duration) -> u64 {
    const KEYS: u64 = 50;
    let keys = (0..KEYS).map(|key| format!("{principal}-{key}")).collect();
    let ask = CheckManyRequest { policy: "api".into(), keys, ..CheckManyRequest::default() };
    let path = "/throttlekit.v1.RateLimiter/CheckMany";
    // Until everybody is there.
    let (begins, end) = (Instant::now() + time / 4, Instant::now() + time);
    let one = async |_: u32| {
        let mut decided = 0;
        while Instant::now() < end {
            match client.call::<CheckManyResponse>(path, &[], &ask).await {
                Ok(_) if Instant::now() > begins => decided += KEYS,
                Ok(_) => {}
                Err(_) => sleep(Duration::from_millis(5)).await,
            }
        }
        decided
    };
    futures_util::future::join_all((0..16).map(one)).await.into_iter().sum()
}

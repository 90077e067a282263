//! Many streams of many tenants, through several gateways, before one model: what each way to meter makes of it.

mod client;
mod plan;
mod report;

pub use plan::Plan;
pub use report::{Figures, WindowFigures};

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use throttlekit::clock::{Clock, WallClock};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::process::{Http, Process, Scratch};
use client::{Caller, Crowd};
use llm_gateway::headers::Allowances;
use llm_gateway::ledger::GatewayStats;
use llm_gateway::metering::Meter;
use report::Seen;

/// Part of the window after the measured ones in which load goes on, so that there is time left in it to read the
/// store when everything is settled.
const LAST_PERCENT: u64 = 40;
/// A machine may be so busy that this window ends first, or that nobody gets so far as to want more. Then all is played
/// again, at most so often.
const PLAYED_MAX: usize = 3;
/// For how long what was left may take to be settled.
const SETTLED_WITHIN: Duration = Duration::from_secs(10);

/// Plays the plan by each meter in turn, prints the table, and fails if a bound was broken.
pub async fn run(plan: Plan) -> Result<()> {
    let binary = std::env::current_exe()?;
    let mut all = Vec::new();
    for meter in plan.meters() {
        eprintln!("{}: {} windows of {} ms", meter.label(), plan.windows, plan.window_ms);
        all.push(played(&plan, meter, &binary).await?);
    }
    print!("{}", report::table(&plan, &all));
    if let Some(place) = &plan.json {
        let mut out: Box<dyn Write> =
            if place == "-" { Box::new(std::io::stdout()) } else { Box::new(File::create(place)?) };
        for figures in &all {
            writeln!(out, "{}", serde_json::to_string(figures)?)?;
        }
    }
    let mut broken = report::shown(&all);
    broken.extend(all.iter().flat_map(|figures| figures.broken.clone()));
    ensure!(broken.is_empty(), "broken: {broken:#?}");
    Ok(())
}

async fn played(plan: &Plan, meter: Meter, binary: &Path) -> Result<Figures> {
    let mut figures = play(plan, meter, binary).await?;
    for _ in 1..PLAYED_MAX {
        if figures.in_time && (meter != Meter::Stream || figures.pairs > 0) {
            break;
        }
        eprintln!("{}: the machine is too busy for a result; running again", meter.label());
        figures = play(plan, meter, binary).await?;
    }
    Ok(figures)
}

/// One meter, on its own keys of the store.
async fn play(plan: &Plan, meter: Meter, binary: &Path) -> Result<Figures> {
    let model = model(plan, binary)?;
    let policy = format!("load-{}-{:x}", meter.label(), WallClock.now().as_nanos());
    let config = Scratch::new(&policy, &serde_json::to_string(&plan.config(&model.url))?)?;
    let gateways = (0..plan.gateways).map(|nth| gateway(plan, meter, binary, &policy, &config, nth));
    let gateways: Vec<Process> = gateways.collect::<Result<_>>()?;
    let crowd = Arc::new(Crowd::default());
    let first = next_window(plan).await;
    let mut callers = callers(plan, &gateways, &crowd);
    sleep_until_ms(first + plan.windows * plan.window_ms + plan.window_ms * LAST_PERCENT / 100).await;
    crowd.stop.send_replace(true);
    while callers.join_next().await.is_some() {}
    let slots = settled(&gateways[0], &crowd.http).await?;
    let books = books(&gateways, &crowd.http).await?;
    let allowances = allowances(&gateways[0], &crowd.http).await?;
    let in_time = now_ms() < first + (plan.windows + 1) * plan.window_ms;
    let model = crowd.http.get(&format!("{}/stats", model.url)).await?;
    let (books, slots, model, counts) = (&books, &slots, &model, &crowd.counts);
    let allowances = in_time.then_some(&allowances);
    Ok(report::judged(plan, &Seen { meter, first, books, allowances, slots, model, counts }))
}

type Slots = BTreeMap<String, Option<u32>>;

/// What was dropped is settled in the background: waits until no slot is held and no budget changes, and says which slots
/// are held still.
async fn settled(gateway: &Process, http: &Http) -> Result<Slots> {
    let used = |allowances: BTreeMap<String, Allowances>| -> Vec<Option<u64>> {
        allowances.values().map(|allowances| allowances.tokens.map(|tokens| tokens.remaining)).collect()
    };
    let (until, mut before) = (WallClock.now() + SETTLED_WITHIN, None);
    loop {
        let slots: Slots = http.get(&format!("{}/admin/slots", gateway.admin)).await?;
        let now = Some(used(allowances(gateway, http).await?));
        let is_settled = now == before && slots.values().all(|held| *held == Some(0));
        if is_settled || WallClock.now() > until {
            return Ok(slots);
        }
        before = now;
        sleep(Duration::from_millis(200)).await;
    }
}

async fn allowances(gateway: &Process, http: &Http) -> Result<BTreeMap<String, Allowances>> {
    http.get(&format!("{}/admin/allowances", gateway.admin)).await
}

fn model(plan: &Plan, binary: &Path) -> Result<Process> {
    let flags = [
        ("seed", plan.seed.to_string()),
        ("chunk", plan.chunk.to_string()),
        ("delay-ms", plan.delay_ms.to_string()),
        ("window-ms", plan.window_ms.to_string()),
    ];
    Process::start(binary, "mock", &flags)
}

fn gateway(
    plan: &Plan,
    meter: Meter,
    binary: &Path,
    policy: &str,
    config: &Scratch,
    nth: usize,
) -> Result<Process> {
    let flags = [
        ("config", config.path()),
        ("meter", meter.label().to_owned()),
        ("redis", plan.redis.clone()),
        ("policy", policy.to_owned()),
        ("region", format!("gateway-{nth}")),
        // The machine is busy with us: what is looked at is what is decided, not how soon.
        ("store-deadline-ms", "5000".to_owned()),
    ];
    Process::start(binary, "serve", &flags)
}

/// Every tenant asks at every gateway, as often as every other.
fn callers(plan: &Plan, gateways: &[Process], crowd: &Arc<Crowd>) -> JoinSet<()> {
    let tenants = plan.tenants();
    let mut callers = JoinSet::new();
    for number in 0..plan.streams {
        let (tenant, round) = (&tenants[number % tenants.len()], number / tenants.len());
        let gateway = gateways[round % gateways.len()].url.clone();
        let caller =
            Caller { gateway, key: tenant.key.clone(), max_tokens: plan.max_tokens, number: number as u64 };
        callers.spawn(caller.run(crowd.clone()));
    }
    callers
}

async fn books(gateways: &[Process], http: &Http) -> Result<Vec<GatewayStats>> {
    let mut books = Vec::new();
    for gateway in gateways {
        books.push(http.get(&format!("{}/admin/stats", gateway.admin)).await?);
    }
    Ok(books)
}

/// Waits for the next window, and says when it began, in milliseconds.
async fn next_window(plan: &Plan) -> u64 {
    let begins = (now_ms() / plan.window_ms + 1) * plan.window_ms;
    sleep_until_ms(begins).await;
    begins
}

fn now_ms() -> u64 {
    WallClock.now().as_nanos() / 1_000_000
}

async fn sleep_until_ms(ms: u64) {
    let now = WallClock.now().as_nanos();
    sleep(Duration::from_nanos((ms * 1_000_000).saturating_sub(now))).await;
}

//! The cost of the evidence: the server's own processor time for a script that reads it, compared with one
//! that does not, in turns.

use anyhow::{Context, Result, ensure};
use redis::aio::MultiplexedConnection;
use throttlekit_redis::ADMIT_SCRIPT;

use crate::failover::servers::Server;

const CALLS: usize = 300;
const TURNS: usize = 20;
const RECORD: &str = "tk:{%since}";

/// The cost of a script with the evidence relative to one without: the median over all turns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    /// A charge of an existing key.
    pub(super) known_key: f64,
    /// The first charge of a key.
    pub(super) new_key: f64,
    /// The same, where the caller checks for evictions afterwards.
    pub(super) new_key_deferred: f64,
}

pub(super) async fn measure() -> Result<Cost> {
    let server = Server::start("redis-server").await?;
    let mut connection = server.connection().await?;
    let with = load(&mut connection, ADMIT_SCRIPT).await?;
    let without = load(&mut connection, &without_evidence()?).await?;
    call(&mut connection, &with, "tk:{first}g:", "?").await?;
    let record: String = redis::cmd("GET").arg(RECORD).query_async(&mut connection).await?;
    let deferring = format!("+{record}");
    let (mut known, mut new, mut deferred) = (Vec::new(), Vec::new(), Vec::new());
    for turn in 0..TURNS {
        let mut spent = Vec::new();
        for (name, sha, known) in
            [("with", &with, &record), ("deferred", &with, &deferring), ("without", &without, &record)]
        {
            let hot = batch(&mut connection, sha, known, |_| "tk:{hot}g:".into()).await?;
            let cold = batch(&mut connection, sha, known, |n| format!("tk:{{{name}{turn}-{n}}}g:")).await?;
            redis::cmd("SET").arg(RECORD).arg(&record).exec_async(&mut connection).await?;
            spent.push((hot, cold));
        }
        let without = spent[2];
        known.push(spent[0].0 / without.0);
        new.push(spent[0].1 / without.1);
        deferred.push(spent[1].1 / without.1);
    }
    Ok(Cost { known_key: middle(known), new_key: middle(new), new_key_deferred: middle(deferred) })
}

/// Returns the same script without the check of the evidence.
fn without_evidence() -> Result<String> {
    let look = "try('GET', record) == known";
    // In the two short paths.
    ensure!(ADMIT_SCRIPT.matches(look).count() == 2, "the script looks at its record in another way");
    let text = ADMIT_SCRIPT.replace(look, "true");
    let at_the_end = "if found == known and not absent then";
    ensure!(text.contains(at_the_end), "the script looks for evictions in another way");
    Ok(text.replace("local found = try('GET', record)\nif", "if").replace(at_the_end, "if true then"))
}

async fn load(connection: &mut MultiplexedConnection, text: &str) -> Result<String> {
    Ok(redis::cmd("SCRIPT").arg("LOAD").arg(text).query_async(connection).await?)
}

fn charge(sha: &str, key: &str, record: &str) -> redis::Cmd {
    let mut cmd = redis::cmd("EVALSHA");
    cmd.arg(sha).arg(1).arg(key).arg("").arg(10_000).arg(1).arg(1_000_000_000).arg(1).arg(record);
    cmd
}

async fn call(connection: &mut MultiplexedConnection, sha: &str, key: &str, record: &str) -> Result<()> {
    Ok(charge(sha, key, record).exec_async(connection).await?)
}

/// Returns the server's seconds for a batch of charges.
async fn batch(
    connection: &mut MultiplexedConnection,
    sha: &str,
    record: &str,
    key: impl Fn(usize) -> String,
) -> Result<f64> {
    let mut all = redis::pipe();
    (0..CALLS).for_each(|n| {
        all.add_command(charge(sha, &key(n), record)).ignore();
    });
    let before = seconds(connection).await?;
    all.exec_async(connection).await?;
    Ok(seconds(connection).await? - before)
}

async fn seconds(connection: &mut MultiplexedConnection) -> Result<f64> {
    let said: String = redis::cmd("INFO").arg("cpu").query_async(connection).await?;
    let field = |name: &str| -> Result<f64> {
        let value =
            said.lines().find_map(|line| line.strip_prefix(name)).context("it tells no processor time")?;
        Ok(value.trim().parse()?)
    };
    Ok(field("used_cpu_user_main_thread:")? + field("used_cpu_sys_main_thread:")?)
}

fn middle(mut ratios: Vec<f64>) -> f64 {
    ratios.sort_by(f64::total_cmp);
    ratios[ratios.len() / 2]
}

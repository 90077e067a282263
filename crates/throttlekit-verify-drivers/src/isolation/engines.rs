//! Real engines, each schedule with a connection of its own to break.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use throttlekit::internals::Mutex;
use throttlekit::store::StoreClientOptions;
use throttlekit_postgres::{Durability, PostgresStore};
use throttlekit_redis::RedisStore;

use crate::runner::Services;
use throttlekit_verify::isolation::{
    Bench, Connect, Engine, MemoryBench, ProxiedBench, Proxy, Rights, Schedule, Timing, background,
};
use throttlekit_verify::postgres;

/// Connections of one store to PostgreSQL.
const POSTGRES_CONNECTIONS: usize = 2;
/// One in use, besides those that probes have just made.
const REDIS_CONNECTIONS: usize = 1;
/// More than concurrent schedules have; the server accepts 200.
const IN_FLIGHT_MAX: usize = 64;

/// The name of our connections in PostgreSQL.
const APPLICATION: &str = "isolated-callers";

/// The addresses of the engines, started where necessary.
pub(super) struct Engines {
    redis: SocketAddr,
    admin: Arc<Mutex<redis::Connection>>,
    postgres: SocketAddr,
    /// The address of PostgreSQL before and after its host and port.
    postgres_url: [String; 2],
}

impl Engines {
    pub(super) fn up(services: Services) -> Result<Self> {
        let env = services.up(&["redis", "postgres"])?;
        let of = |name: &str| {
            let found = env.iter().find(|(known, _)| *known == name);
            found.map(|(_, url)| url.clone()).with_context(|| format!("{name} has no address"))
        };
        let (redis_url, url) = (of("THROTTLEKIT_REDIS")?, of("THROTTLEKIT_POSTGRES")?);
        let redis = redis_url.trim_start_matches("redis://").trim_end_matches('/').parse()?;
        let (before, rest) = url.split_once('@').context("the address names a user")?;
        let (host, after) = rest.split_once('/').context("the address names a database")?;
        let migrated = PostgresStore::builder(url.clone());
        background().block_on(migrated.migrate())?;
        Ok(Self {
            redis,
            admin: Arc::new(Mutex::new(redis::Client::open(redis_url)?.get_connection()?)),
            postgres: host.parse()?,
            postgres_url: [format!("{before}@"), format!("/{after}?application_name={APPLICATION}")],
        })
    }

    /// Returns the bench of a schedule.
    pub(super) fn bench(&self, schedule: &Schedule) -> Result<Box<dyn Bench>, String> {
        let bench = match schedule.engine {
            Engine::Memory => return Ok(Box::new(MemoryBench::new(schedule, None))),
            Engine::Redis => self.redis_bench(schedule.seed),
            Engine::Postgres => self.postgres_bench(),
            Engine::Server => return Err("a server is reached by its client's own tests".into()),
        };
        bench.map_err(|error| format!("{error:#}"))
    }

    fn redis_bench(&self, seed: u64) -> Result<Box<dyn Bench>> {
        let user = format!("caller{seed}");
        let rights = self.rights(&user);
        rights(true);
        let connect: Connect<RedisStore> = Box::new(move |address, timing: Timing| {
            let builder = RedisStore::builder(format!("redis://{user}:secret@{address}/"));
            let builder = builder
                .deadline(timing.deadline)
                .breaker(timing.opens_after, timing.probe_every)
                .in_flight_max(IN_FLIGHT_MAX);
            Box::pin(builder.connect())
        });
        let proxy = Proxy::to(self.redis)?;
        let bench = ProxiedBench::new(proxy, connect, RedisStore::line_stats, REDIS_CONNECTIONS);
        Ok(Box::new(bench.with_rights(rights)))
    }

    /// Returns a function that grants a user all rights, or revokes nearly all and closes its connections.
    fn rights(&self, user: &str) -> Rights {
        let (admin, user) = (self.admin.clone(), user.to_owned());
        Box::new(move |has| {
            let mut admin = admin.lock();
            let words: &[&str] = if has {
                &["on", ">secret", "~*", "&*", "+@all"]
            } else {
                &["-@all", "+hello", "+client", "+info", "+auth"]
            };
            let set = redis::cmd("ACL").arg("SETUSER").arg(&user).arg(words).exec(&mut admin);
            set.expect("the engine takes users");
            if !has {
                let killed = redis::cmd("CLIENT").arg("KILL").arg("USER").arg(&user).exec(&mut admin);
                killed.expect("the engine ends connections");
            }
        })
    }

    fn postgres_bench(&self) -> Result<Box<dyn Bench>> {
        let [before, after] = self.postgres_url.clone();
        let connect: Connect<PostgresStore> = Box::new(move |address, timing: Timing| {
            let line = StoreClientOptions {
                deadline: timing.deadline,
                in_flight_max: IN_FLIGHT_MAX,
                opens_after: timing.opens_after,
                probe_every: timing.probe_every,
            };
            let builder = PostgresStore::builder(format!("{before}{address}{after}"));
            // The test is about waits between callers, not about the speed of a disk.
            let builder = builder.line(line).durability(Durability::Deferred);
            Box::pin(builder.connections(POSTGRES_CONNECTIONS).connect())
        });
        let proxy = Proxy::to(self.postgres)?;
        Ok(Box::new(ProxiedBench::new(proxy, connect, PostgresStore::line_stats, POSTGRES_CONNECTIONS)))
    }

    /// Returns the connections that our stores have left open at the engines themselves, by name of the
    /// engine.
    pub(super) fn left_open(&self) -> Result<[(&'static str, i64); 2]> {
        let mut admin = self.admin.lock();
        let clients: String = redis::cmd("CLIENT").arg("LIST").query(&mut admin)?;
        let redis = clients.lines().filter(|line| line.contains(" user=caller")).count() as i64;
        let ours = format!("select count(*) from pg_stat_activity where application_name = '{APPLICATION}'");
        let count =
            postgres::query(self.postgres.port(), "postgres", &ours).context("PostgreSQL does not answer")?;
        Ok([("redis", redis), ("postgres", count.parse()?)])
    }
}

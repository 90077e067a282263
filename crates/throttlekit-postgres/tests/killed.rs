//! A dedicated server, killed and started again: the responses meanwhile, the kept state, and the time until
//! recovery.

use std::time::Duration;

use throttlekit::clock::{Clock, PreciseClock};
use throttlekit::store::StoreClientOptions;
use throttlekit::{Guarantee, Limit, SharedLimiter};
use throttlekit_postgres::PostgresStore;
use throttlekit_verify::postgres::Server;
use tokio::time::{sleep, timeout};

const LIMIT: u64 = 1_000;
const DAY: Duration = Duration::from_secs(86_400);
const RECOVERY_MAX: Duration = Duration::from_millis(300);
const ATTEMPTS: usize = 2;

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_loses_no_decision_and_is_found_again() {
    let server = Server::create();
    server.start();
    let line = StoreClientOptions { deadline: Duration::from_millis(250), ..StoreClientOptions::default() };
    let store =
        PostgresStore::builder(server.url()).line(line).migrate_on_connect(true).connect().await.unwrap();
    let limiter = SharedLimiter::new(store, "killed", Limit::fixed_window(LIMIT, DAY).unwrap()).unwrap();
    let clock = PreciseClock::new();
    let mut admitted = 0;
    let mut best = Duration::MAX;
    for attempt in 1..=ATTEMPTS {
        for _ in 0..20 {
            let answer = limiter.check("alice").await.unwrap();
            admitted += u64::from(answer.decision.allowed && answer.guarantee == Guarantee::Exact);
        }
        server.kill();
        for _ in 0..10 {
            let answer = limiter.check("alice").await.unwrap();
            assert_eq!((answer.decision.allowed, answer.guarantee), (false, Guarantee::Closed), "{answer:?}");
        }
        assert!(limiter.store().line_stats().open, "five outages open the breaker");
        // While the breaker is open a decision costs no wait.
        let begun = clock.now();
        for _ in 0..10_000 {
            limiter.check("alice").await.unwrap();
        }
        let mean = clock.now().since(begun) / 10_000;
        assert!(mean < Duration::from_millis(1), "{mean:?} for a decision while the server is away");

        server.start();
        let up = clock.now();
        let back = timeout(Duration::from_secs(20), async {
            while limiter.check("alice").await.unwrap().guarantee != Guarantee::Exact {
                sleep(Duration::from_millis(2)).await;
            }
        });
        back.await.expect("the store is found again");
        admitted += 1;
        let took = clock.now().since(up);
        println!(
            "figure: postgres killed and restarted, attempt {attempt}: recovery_ms {}",
            took.as_millis()
        );
        best = best.min(took);
    }
    assert!(best <= RECOVERY_MAX, "{best:?} until the first good decision");
    let left = limiter.peek(b"alice").await.unwrap().remaining;
    assert_eq!(left, LIMIT - admitted, "what was answered is kept, and nothing was charged twice");
}

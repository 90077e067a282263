//! Cost of authentication: the processor time of a check, with one principal and with a thousand, and of a refusal.

use std::time::Duration;

use futures_util::future::join_all;

use crate::burn;
use crate::client::{Client, Failure};
use crate::measure::round;
use crate::siege::{Besieged, token};

/// Maximum ratio of the cost of a check with a thousand principals to one with one, and of a wrong token to a right one.
pub(crate) const TIMES_MAX: f64 = 1.1;
const PRINCIPALS: usize = 1_000;
/// Checks between two readings of the clock, which has steps of ten milliseconds.
const CHECKS: usize = 10_000;
const ROUNDS: usize = 7;

/// Of a thousand principals beside one, and of a wrong token beside a right one: medians of rounds that take turns.
pub(crate) async fn of_principals() -> (f64, f64) {
    let names = |count: usize| (0..count).map(|number| format!("p{number}"));
    // A thousand tokens are read each time, which is not what is measured.
    let start = |count: usize| {
        let principals = names(count).map(|name| (name, 1)).collect::<Vec<_>>();
        Besieged::reloading("memory", &principals, Duration::from_secs(60))
    };
    let (one, many) = (start(1), start(PRINCIPALS));
    let clients = [Client::connect(one.listeners.grpc).await, Client::connect(many.listeners.grpc).await];
    let [of_one, of_many] = clients.map(|client| client.expect("a connection"));
    let tokens = |count: usize| names(count).map(|name| token(&name)).collect::<Vec<_>>();
    let (right, all) = (tokens(1), tokens(PRINCIPALS));
    let wrong: Vec<_> = all.iter().map(|token| format!("{token}?")).collect();
    let mut times = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let alone = spent(&one, &of_one, &right).await;
        let among = spent(&many, &of_many, &all).await;
        let refused = spent(&many, &of_many, &wrong).await;
        times.0.push(among / alone);
        times.1.push(refused / among);
    }
    (round(median(times.0)), round(median(times.1)))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Seconds of processor time that a server takes for as many checks, with these tokens in turn.
async fn spent(server: &Besieged, client: &Client, tokens: &[String]) -> f64 {
    let before = burn::spent_by(server.process());
    let tokens =
        tokens.iter().cycle().take(CHECKS).map(|token| format!("Bearer {token}")).collect::<Vec<_>>();
    for some in tokens.chunks(100) {
        let each = some.iter().map(|token| async move {
            // Refused or not: what it cost is what counts.
            let answer = client.check_as(&[("authorization", token)], "chat", "honest").await;
            assert!(!matches!(answer, Err(Failure::Lost(_))), "{answer:?}");
        });
        join_all(each).await;
    }
    (burn::spent_by(server.process()) - before).max(Duration::from_millis(10)).as_secs_f64()
}

//! The cost of finding a caller by its token: nanoseconds, among 1, 1,000 and 10,000 principals, for a right and a wrong
//! token. Rounds are interleaved, and the last line has the ratios.

use std::hint::black_box;
use std::time::Duration;

use serde_json::json;
use sha2::{Digest, Sha256};
use throttlekit::{Clock, PreciseClock};
use throttlekit_server::access::{Access, AccessSpec, PrincipalSpec};

const EACH: u32 = 2_000;
const ROUNDS: u32 = 500;
const SIZES: [u32; 3] = [1, 1_000, 10_000];

fn main() -> Result<(), String> {
    let lists = SIZES.map(list).into_iter().collect::<Result<Vec<_>, _>>()?;
    let headers = [token(0), token(u32::MAX)].map(|token| {
        let value = http::HeaderValue::try_from(format!("Bearer {token}")).map_err(|error| error.to_string());
        value.map(|value| http::HeaderMap::from_iter([(http::header::AUTHORIZATION, value)]))
    });
    let [right, wrong] = headers;
    let (right, wrong, clock) = (right?, wrong?, PreciseClock::new());
    let time = |access: &Access, headers: &http::HeaderMap| {
        let start = clock.now();
        (0..EACH).for_each(|_| drop(black_box(access.identify(headers, None))));
        clock.now().since(start) / EACH
    };
    let mut best = [[Duration::MAX; 2]; SIZES.len()];
    for _ in 0..ROUNDS {
        for (best, list) in best.iter_mut().zip(&lists) {
            *best = [best[0].min(time(list, &right)), best[1].min(time(list, &wrong))];
        }
    }
    for (size, [right, wrong]) in SIZES.iter().zip(&best) {
        println!("principals={size:<6} right token {right:?} wrong token {wrong:?}");
    }
    let ratio = |a: Duration, b: Duration| (a.as_secs_f64() / b.as_secs_f64() * 1_000.0).round() / 1_000.0;
    let [[one, _], [thousand, wrong], [most, _]] = best;
    println!(
        "figure: {}",
        json!({
            "name": "identify-cost",
            "of_1000_by_1": ratio(thousand, one),
            "of_10000_by_1": ratio(most, one),
            "wrong_by_right_of_1000": ratio(wrong, thousand),
        })
    );
    Ok(())
}

fn token(number: u32) -> String {
    format!("the token number {number:010}")
}

fn list(principals: u32) -> Result<Access, String> {
    let principal = |number: u32| {
        let digest: String = Sha256::digest(token(number)).iter().map(|byte| format!("{byte:02x}")).collect();
        (format!("p{number}"), PrincipalSpec { token_sha256: Some(digest), ..PrincipalSpec::default() })
    };
    let principals = (0..principals).map(principal).collect();
    Access::of(&AccessSpec { principals, ..AccessSpec::default() })
}

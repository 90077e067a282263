//! The cost of finding a caller by its token: nanoseconds, among 1, 1,000 and 10,000 principals, for one caller again and
//! again, for all in turn (whose tables are then not in the processor's nearest cache), and for wrong tokens. Rounds are
//! interleaved, and the last line has the ratios.

use std::hint::black_box;
use std::time::Duration;

use serde_json::json;
use sha2::{Digest, Sha256};
use throttlekit::clock::{Clock, PreciseClock};
use throttlekit_server::internals::access::Access;
use throttlekit_server::policy::{AccessSpec, PrincipalSpec};

const EACH: u32 = 2_000;
const ROUNDS: u32 = 500;
const SIZES: [u32; 3] = [1, 1_000, 10_000];

fn main() -> Result<(), String> {
    let clock = PreciseClock::new();
    let mut lists = Vec::new();
    for size in SIZES {
        // As many requests for each list, so that the list alone is larger.
        let requests = |token: &dyn Fn(u32) -> u32| (0..EACH).map(|number| shown(token(number))).collect();
        let same: Result<Vec<_>, _> = requests(&|_| 0);
        let all: Result<Vec<_>, _> = requests(&|number| number * 7_919 % size);
        let wrong: Result<Vec<_>, _> = requests(&|number| u32::MAX - number);
        lists.push((list(size)?, [same?, all?, wrong?]));
    }
    let time = |access: &Access, requests: &[http::HeaderMap]| {
        let start = clock.now();
        requests.iter().for_each(|headers| drop(black_box(access.identify(headers, None))));
        clock.now().since(start) / EACH
    };
    let mut best = [[Duration::MAX; 3]; SIZES.len()];
    for _ in 0..ROUNDS {
        for (best, (list, requests)) in best.iter_mut().zip(&lists) {
            for (best, requests) in best.iter_mut().zip(requests) {
                *best = (*best).min(time(list, requests));
            }
        }
    }
    for (size, [same, all, wrong]) in SIZES.iter().zip(&best) {
        println!("principals={size:<6} one caller {same:?} all in turn {all:?} wrong tokens {wrong:?}");
    }
    let ratio = |a: Duration, b: Duration| (a.as_secs_f64() / b.as_secs_f64() * 1_000.0).round() / 1_000.0;
    let [[one, ..], [thousand, thousand_all, wrong], [most, most_all, _]] = best;
    println!(
        "figure: {}",
        json!({
            "name": "identify-cost",
            "of_1000_by_1": ratio(thousand, one),
            "of_10000_by_1": ratio(most, one),
            "all_of_1000_by_1": ratio(thousand_all, one),
            "all_of_10000_by_1": ratio(most_all, one),
            "wrong_by_right_of_1000": ratio(wrong, thousand),
        })
    );
    Ok(())
}

fn token(number: u32) -> String {
    format!("the token number {number:010}")
}

fn shown(number: u32) -> Result<http::HeaderMap, String> {
    let value = http::HeaderValue::try_from(format!("Bearer {}", token(number)));
    let value = value.map_err(|error| error.to_string())?;
    Ok(http::HeaderMap::from_iter([(http::header::AUTHORIZATION, value)]))
}

fn list(principals: u32) -> Result<Access, String> {
    let principal = |number: u32| {
        let digest: String = Sha256::digest(token(number)).iter().map(|byte| format!("{byte:02x}")).collect();
        (format!("p{number}"), PrincipalSpec { token_sha256: Some(digest), ..PrincipalSpec::default() })
    };
    let principals = (0..principals).map(principal).collect();
    Access::of(&AccessSpec { principals, ..AccessSpec::default() }).map_err(|error| error.to_string())
}

//! Limits each key, in one process.

use throttlekit::{BuildError, Limiter, Rate};

fn main() -> Result<(), BuildError> {
    let limiter = Limiter::new(Rate::per_minute(100).burst(10))?;
    for request in 1..=12 {
        let decision = limiter.check("alice");
        match decision.retry_after.wait() {
            _ if decision.allowed => println!("{request}: 200, {} left", decision.remaining),
            Some(wait) => println!("{request}: 429, retry after {wait:.1?}"),
            None => println!("{request}: 429, too large for this limit"),
        }
    }
    Ok(())
}

//! Limits each user and each organization; a request is charged to both or to none.

use throttlekit::{Budget, BuildError, Call, Limiter, Rate};

fn main() -> Result<(), BuildError> {
    let limiter = Limiter::builder(Rate::per_minute(100).burst(10))
        .limit("daily", Budget::per_day(10_000))
        .limit_by(1, "organization", Rate::per_minute(15))
        .build()?;

    let allowed =
        |user: &str| (0..20).filter(|_| limiter.check(Call::by(user).and(&["acme"])).allowed).count();
    println!("alice: {} of 20 allowed", allowed("alice"));
    println!("bob:   {} of 20 allowed", allowed("bob"));
    Ok(())
}

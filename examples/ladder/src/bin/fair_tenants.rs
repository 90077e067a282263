//! One budget that tenants share by weight: who asks for less leaves the rest to the others.

use throttlekit::{Budget, BuildError, FairLimiter};

fn main() -> Result<(), BuildError> {
    let limiter = FairLimiter::builder(Budget::per_minute(400))
        .weights(|tenant| if tenant == b"gold" { 3 } else { 1 })
        .build()?;

    let (mut gold, mut silver) = (0, 0);
    for _ in 0..1_000 {
        gold += u32::from(limiter.check("gold").allowed);
        silver += u32::from(limiter.check("silver").allowed);
    }
    println!("gold {gold}, silver {silver}");
    Ok(())
}

//! `deny-is-free`: a denied request of 2 to 16 charges leaves every stored byte and every expiry unchanged.

use std::time::Duration;

use crate::common::{plain, policy, single};
use redis::aio::MultiplexedConnection;
use throttlekit::rate::Cadence;
use throttlekit::store::{Charge, Charges, KeySpace, Store};
use throttlekit::{Limit, Rate};
use throttlekit_core::rate::Need;
use throttlekit_core::rate::shared::ScriptEncoding;

/// Returns everything stored under these keys: type and bytes, and the expiry.
async fn stored(connection: &mut MultiplexedConnection, keys: &[String]) -> Vec<(Option<Vec<u8>>, i64)> {
    let mut all = Vec::new();
    for key in keys {
        let dump = redis::cmd("DUMP").arg(key).query_async(connection).await.unwrap();
        let expires = redis::cmd("PEXPIRETIME").arg(key).query_async(connection).await.unwrap();
        all.push((dump, expires));
    }
    all
}

/// Returns every kind of rule in rotation, so that any of them may be the one that denies.
fn forms(count: usize) -> Vec<ScriptEncoding> {
    let day = Duration::from_secs(86_400);
    let limits = [
        Limit::gcra(Rate::per_hour(7).burst(5)),
        Limit::fixed_window(5, 30 * day),
        Limit::quota(5, Cadence::Month { utc_offset_minutes: -300 }),
        Limit::sliding_window(5, day),
        Limit::sliding_log(5, day),
    ];
    (0..count).map(|i| ScriptEncoding::of(&limits[i % limits.len()].unwrap()).unwrap()).collect()
}

#[tokio::test]
async fn deny_is_free_in_every_stored_byte() {
    let store = single().connect().await.unwrap();
    let mut connection = plain("THROTTLEKIT_REDIS").await;
    for count in 2..=16 {
        let forms = forms(count);
        let policy = policy("free");
        let name = |(i, form): (usize, &ScriptEncoding)| {
            KeySpace::new("tk", &policy, &i.to_string(), form).key(b"h", b"k")
        };
        let keys: Vec<String> = forms.iter().enumerate().map(name).collect();
        for denier in 0..count {
            for need in [Need::All, Need::Any] {
                // Each key but the last has a state; the request exceeds one of the limits, or for `Any` all
                // of them.
                let cost = |i: usize| if i == denier || need == Need::Any { 6 } else { 1 };
                let charges = |cost: &dyn Fn(usize) -> u64| -> Vec<Charge<'_>> {
                    let each = keys.iter().zip(&forms).enumerate();
                    each.map(|(i, (key, form))| Charge { key, form, cost: cost(i) }).collect()
                };
                let first = charges(&|_| 1);
                if denier == 0 && need == Need::All {
                    store.admit(&[Charges { need, charges: &first[..count - 1] }]).await.unwrap();
                }
                let before = stored(&mut connection, &keys).await;
                let asked = charges(&cost);
                let outcome = store.admit(&[Charges { need, charges: &asked }]).await.unwrap();
                assert!(!outcome[0].verdict.decision.allowed);
                assert_eq!(stored(&mut connection, &keys).await, before, "{count} charges, {denier} denies");
            }
        }
    }
}

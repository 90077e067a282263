//! rate-net 2.1: its token bucket, on raw key bytes.

use rate_net::{DirectLimiter, Eviction, RateLimiter};

use super::{Check, consumed};
use crate::workloads::Stream;

const PER_SECOND: u32 = 1_000_000_000;

struct Keyed(RateLimiter);
struct Direct(DirectLimiter);

/// Without a cap, as governor has none.
pub fn keyed() -> impl Check + 'static {
    Keyed(RateLimiter::builder().per_second(PER_SECOND).eviction(Eviction::unbounded()).build())
}

/// One state.
pub fn direct() -> impl Check + 'static {
    Direct(DirectLimiter::per_second(PER_SECOND))
}

impl Check for Keyed {
    type Scratch = ();

    #[inline(always)]
    fn check(&self, stream: &Stream, at: usize, (): &mut ()) -> usize {
        usize::from(consumed(self.0.check_bytes(stream.string(at))).is_allow())
    }

    fn seed(&self, key: &str) {
        _ = self.0.check_bytes(key);
    }
}

impl Check for Direct {
    type Scratch = ();

    #[inline(always)]
    fn check(&self, _stream: &Stream, _at: usize, (): &mut ()) -> usize {
        usize::from(consumed(self.0.check()).is_allow())
    }
}

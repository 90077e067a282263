//! No limit.

use throttlekit_core::{ALLOW_FULL, Timestamp};

use super::{Admission, Admit, Admitting, Axis, LimitInfo, SharedPermit};
use crate::Call;

/// Admits everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unlimited;

impl Admit for Unlimited {
    fn admit(&self, _: Call<'_>) -> Admitting {
        Admitting::ready(Ok(Admission::of(Axis::Rate, ALLOW_FULL, SharedPermit::none())))
    }

    fn limits(&self) -> Vec<LimitInfo> {
        Vec::new()
    }

    fn now(&self) -> Timestamp {
        Timestamp::EPOCH
    }
}

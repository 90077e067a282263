//! A shared policy decides after round trips; the permit settles every axis.

use std::sync::Arc;

use throttlekit_core::Timestamp;

use super::SharedPolicy;
use super::slots::Entrance;
use crate::Call;
use crate::admit::{Admit, Admitting, LimitInfo};
use crate::call::OwnedCall;
use crate::clock::{Clock, WallClock};

impl Admit for Arc<SharedPolicy> {
    fn admit(&self, call: Call<'_>) -> Admitting {
        admit(self, &call, Entrance::AtOnce)
    }

    /// Waits in the queue of the concurrency limit, if it is in this process. The other axes decide afterwards, at once.
    fn admit_queued(&self, call: Call<'_>) -> Admitting {
        admit(self, &call, Entrance::Queued)
    }

    fn limits(&self) -> Vec<LimitInfo> {
        self.limit_infos()
    }

    /// Returns the time of this machine: the axes of a policy may be on several stores, each with a clock of its own.
    fn now(&self) -> Timestamp {
        WallClock.now()
    }
}

fn admit(policy: &Arc<SharedPolicy>, call: &Call<'_>, entrance: Entrance) -> Admitting {
    let (policy, call) = (policy.clone(), Arc::new(OwnedCall::of(call)));
    Admitting::pending(async move {
        let others = call.others();
        policy.admit_copied(&call.borrowed(&others), entrance, || call.clone()).await
    })
}

//! A policy in process decides at once; the permit settles every axis.

use std::sync::Arc;
use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::concurrency::Ending;

use super::{Permit, Policy};
use crate::admit::{Admit, Admitting, Debiting, Held, LimitInfo, SharedPermit};
use crate::clock::Clock;
use crate::{Call, LimitName};

impl<C: Clock + 'static> Admit for Arc<Policy<C>> {
    fn admit(&self, call: Call<'_>) -> Admitting {
        Admitting::ready(Ok(self.admit_owned(call).map(SharedPermit::new)))
    }

    fn limits(&self) -> Vec<LimitInfo> {
        self.limit_infos()
    }

    fn now(&self) -> Timestamp {
        (**self).now()
    }
}

impl<C: Clock + 'static> Held for Permit<'static, C> {
    fn end(self: Box<Self>, ending: Ending, latency: Option<Duration>) {
        (*self).end(ending, latency);
    }

    fn debit(&mut self, units: u64) -> Debiting<'_> {
        Debiting::ready(Ok(self.debit(units)))
    }

    fn settle(&mut self, actual: u64) {
        self.settle(actual);
    }

    fn used(&self) -> u64 {
        self.used()
    }

    fn reserved(&self) -> u64 {
        self.reserved()
    }

    fn elapsed(&self) -> Option<Duration> {
        self.elapsed()
    }

    fn limit_name(&self) -> Option<LimitName> {
        self.limit_name()
    }
}

//! The real `openai` client for Python against the gateway: what it sees is what everyone's code sees.

use crate::common::{Limits, Model, Stand};
use crate::python;
use llm_gateway::metering::Meter;

const QUICK: Model = Model { length: 50, chunk: 4, delay_ms: 0 };
/// Generates until someone stops it.
const ENDLESS: Model = Model { length: 1_000_000, chunk: 4, delay_ms: 25 };
const PLENTY: Limits = Limits { rpm: 1_000, tpm: 100_000, concurrency: 8 };

#[tokio::test(flavor = "multi_thread")]
async fn a_completion_comes_back_whole_and_costs_what_it_says() {
    let stand = Stand::new(Meter::Stream, QUICK, PLENTY).await;
    python::play("completion", &stand);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_comes_by_chunks_and_costs_what_it_says() {
    let stand = Stand::new(Meter::Stream, QUICK, PLENTY).await;
    python::play("stream", &stand);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_cut_where_the_budget_ends_as_if_the_model_had_stopped() {
    for concurrency in [8, 1] {
        let stand = Stand::new(Meter::Stream, ENDLESS, Limits { tpm: 200, concurrency, ..PLENTY }).await;
        python::play("cut", &stand);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denial_is_a_rate_limit_error_that_says_which_limit_and_when_to_come_back() {
    let stand = Stand::new(Meter::Stream, QUICK, Limits { rpm: 2, ..PLENTY }).await;
    python::play("denied", &stand);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_too_many_at_a_time_is_denied_until_another_ends() {
    let stand = Stand::new(Meter::Stream, ENDLESS, Limits { concurrency: 1, ..PLENTY }).await;
    python::play("crowded", &stand);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_goes_away_gives_its_slot_back_and_has_paid_for_what_it_was_sent() {
    let stand = Stand::new(Meter::Stream, ENDLESS, Limits { concurrency: 1, ..PLENTY }).await;
    python::play("gone", &stand);
}

#[tokio::test(flavor = "multi_thread")]
async fn either_baseline_serves_and_settles_as_well() {
    for meter in [Meter::Reserve, Meter::Count] {
        let stand = Stand::new(meter, QUICK, PLENTY).await;
        python::play("completion", &stand);
        python::play("stream_only", &stand);
    }
}

use super::*;

const WORK: Duration = Duration::from_millis(50);

fn sample(latency: Duration, in_flight: u32, allowed: u32) -> Sample {
    Sample { latency, in_flight, allowed }
}

/// Work that takes this long whatever the load, with the ceiling in full use.
fn saturate(estimator: &mut Estimator, latency: Duration, completions: u32) -> u32 {
    for _ in 0..completions {
        let allowed = estimator.limit();
        estimator.success(sample(latency, allowed, allowed), Timestamp::EPOCH);
    }
    estimator.limit()
}

#[test]
fn grows_to_the_most_while_nothing_queues_and_not_beyond() {
    let mut estimator = Estimator::new(Ceiling::between(4, 300));
    assert_eq!(estimator.limit(), 4);
    assert_eq!(saturate(&mut estimator, WORK, 5_000), 300);
}

#[test]
fn rests_while_less_than_half_is_in_use() {
    let mut estimator = Estimator::new(Ceiling::default().starting_at(101));
    for _ in 0..1_000 {
        estimator.success(sample(WORK, 50, 101), Timestamp::EPOCH);
    }
    assert_eq!(estimator.limit(), 101);
    for _ in 0..1_000 {
        estimator.success(sample(WORK, 51, 101), Timestamp::EPOCH);
    }
    assert!(estimator.limit() > 101, "half was in use");
}

#[test]
fn work_of_zero_duration_is_not_a_sample() {
    let mut estimator = Estimator::new(Ceiling::default());
    let mut other = estimator.clone();
    for _ in 0..500 {
        estimator.success(sample(Duration::ZERO, 100, 100), Timestamp::EPOCH);
        let allowed = estimator.limit();
        estimator.success(sample(WORK, allowed, allowed), Timestamp::EPOCH);
    }
    assert_eq!(estimator.limit(), saturate(&mut other, WORK, 500));
}

#[test]
fn drops_alone_bring_it_down_to_the_least_and_not_below() {
    for ceiling in [Ceiling::between(7, 512), Ceiling::between(7, 512).aimd(0.9)] {
        let mut estimator = Estimator::new(ceiling.starting_at(400));
        for _ in 0..20_000 {
            estimator.dropped(Timestamp::EPOCH);
        }
        assert_eq!(estimator.limit(), 7);
    }
}

#[test]
fn one_burst_of_drops_is_one_step_down() {
    let mut estimator = Estimator::new(Ceiling::default().starting_at(200));
    saturate(&mut estimator, WORK, 1_000);
    let before = estimator.limit();
    for _ in 0..before {
        estimator.dropped(Timestamp::EPOCH);
    }
    assert!(2 * estimator.limit() >= before, "from {before} to {} within a round", estimator.limit());
}

#[test]
fn aimd_adds_one_a_round_and_backs_off_when_latency_rises() {
    let mut estimator = Estimator::new(Ceiling::default().starting_at(20).aimd(0.5));
    let grown = saturate(&mut estimator, WORK, 1_000);
    assert!((30..=60).contains(&grown), "{grown}");
    assert!(saturate(&mut estimator, 2 * WORK, 150) < grown);
}

#[test]
fn silly_options_become_sensible_ones() {
    let ceiling = Ceiling::between(0, 0).starting_at(9).aimd(f64::NAN).tolerance(f64::NAN);
    let mut estimator = Estimator::new(ceiling);
    assert_eq!(estimator.limit(), 1);
    assert_eq!(saturate(&mut estimator, WORK, 100), 1);
}

#[test]
fn absurd_samples_do_not_harm() {
    let mut estimator = Estimator::new(Ceiling::default());
    for (latency, in_flight, allowed) in
        [(Duration::MAX, u32::MAX, 0), (Duration::from_nanos(1), 0, u32::MAX), (WORK, 0, 0)]
    {
        for _ in 0..200 {
            let limit = estimator.success(sample(latency, in_flight, allowed), Timestamp::MAX);
            assert!((4..=512).contains(&limit));
        }
    }
}

#[test]
fn work_that_ends_in_waves_fills_the_ceiling_all_the_same() {
    let mut estimator = Estimator::new(Ceiling::between(4, 512));
    for wave in 1..200_u64 {
        let allowed = estimator.limit();
        // All of a wave are admitted one after the other, and done at once: fifty milliseconds for each twenty of them.
        let latency = Duration::from_millis(50 * u64::from(allowed.max(20)) / 20);
        for in_flight in 1..=allowed {
            estimator.success(Sample { latency, in_flight, allowed }, Timestamp::from_millis(100 * wave));
        }
    }
    assert!((16..=24).contains(&estimator.limit()), "{}", estimator.limit());
}

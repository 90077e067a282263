use super::*;

#[test]
fn the_optimum_costs_least_and_its_neighbours_more() {
    for demand in [1.0, 100.0, 12_345.0] {
        let best = eoq_optimum(demand, 3.0, 0.5);
        let cost = |batch| eoq_cost(batch, demand, 3.0, 0.5);
        assert!(cost(best) < cost(best * 0.99) && cost(best) < cost(best * 1.01));
        assert!((cost(best) - libm::sqrt(2.0 * 3.0 * 0.5 * demand)).abs() < 1e-9);
    }
}

#[test]
fn the_batch_is_the_better_whole_neighbour() {
    let options = SizerOptions::default();
    for demand in 1..5_000u32 {
        let demand = f64::from(demand);
        let cost = |batch: u64| eoq_cost(batch as f64, demand, 1.0, 1.0);
        let batch = options.batch(options.best_aim(demand));
        assert!(cost(batch) <= cost(batch + 1) + 1e-9, "{demand}");
        assert!(batch == 1 || cost(batch) <= cost(batch - 1) + 1e-9, "{demand}");
    }
}

#[test]
fn a_sizer_finds_steady_demand_after_one_window_and_jumps_after_sixteen() {
    let mut sizer = Sizer::default();
    assert_eq!(sizer.batch(), 16);
    sizer.observe(5_000);
    assert_eq!(sizer.batch(), 100);
    (0..1_000).for_each(|_| sizer.observe(5_000));
    assert_eq!((sizer.batch(), sizer.restarts()), (100, 1));
    (1..RUN).for_each(|_| sizer.observe(5_000_000_000));
    assert_eq!(sizer.restarts(), 1);
    sizer.observe(5_000_000_000);
    assert_eq!((sizer.batch(), sizer.restarts()), (100_000, 2));
}

#[test]
fn batches_stay_within_bounds_that_meet() {
    let one = SizerOptions { batch_min: 7, batch_max: 7, ..SizerOptions::default() };
    let mut sizer = Sizer::new(one).unwrap();
    for demand in [0, u64::MAX, 1, 7] {
        sizer.observe(demand);
        assert_eq!(sizer.batch(), 7);
    }
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let wrong = |change: fn(&mut SizerOptions)| {
        let mut options = SizerOptions::default();
        change(&mut options);
        Sizer::new(options).is_err() && PredictiveSizer::new(options).is_err()
    };
    assert!(wrong(|o| o.batch_min = 0));
    assert!(wrong(|o| o.batch_max = 0));
    assert!(wrong(|o| o.order_cost = 0.0));
    assert!(wrong(|o| o.order_cost = f64::NAN));
    assert!(wrong(|o| o.strand_penalty = f64::INFINITY));
}

#[test]
fn a_forecast_is_trusted_while_it_is_right() {
    let mut sizer = PredictiveSizer::default();
    for window in 0..200 {
        let demand = if window % 2 == 0 { 200 } else { 20_000 };
        sizer.observe(demand, demand);
    }
    assert!(sizer.trust() > 0.99);
    assert_eq!(sizer.batch(20_000), 200);
    for window in 0..400 {
        let demand = if window % 2 == 0 { 200 } else { 20_000 };
        sizer.observe(20_200 - demand, demand);
    }
    assert!(sizer.trust() < 0.01, "{}", sizer.trust());
}

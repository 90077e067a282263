use super::*;

#[test]
fn a_value_equal_to_the_price_is_admitted() {
    for (value, cost) in [(1.0, 3), (0.1, 7), (1e-7, 1_000_003), (9e15, 11), (0.3, 1 << 52)] {
        let kind = RequestKind { weight: 9.0, value, cost: cost as f64, hold: 0.0 };
        let budgets = Budgets { rate: 9.0, cost: 4.5 * cost as f64, hold: None };
        let solution = solve_fluid_lp(&[kind], &budgets).unwrap();
        assert!(solution.duals.cost > 0.0, "{solution:?}");
        assert!(solution.duals.admits(&Bid::new(value, cost)), "{value} {cost} {solution:?}");
    }
}

#[test]
fn a_hold_that_is_no_hold_costs_nothing_and_buys_nothing() {
    let prices = Prices { rate: 1.0, cost: 0.5, hold: 2.0 };
    for hold in [None, Some(f64::NAN), Some(f64::INFINITY), Some(f64::NEG_INFINITY), Some(-1e9), Some(0.0)] {
        assert_eq!(prices.of(&Bid { value: 0.0, cost: 4, hold }), 3.0, "{hold:?}");
    }
    assert_eq!(prices.of(&Bid::new(0.0, 4).hold(3.0)), 9.0);
}

#[test]
fn nan_and_negative_values_are_denied() {
    for value in [f64::NAN, f64::NEG_INFINITY, -1.0] {
        assert!(!Prices::FREE.admits(&Bid::new(value, 0)));
    }
    assert!(Prices::FREE.admits(&Bid::new(0.0, u64::MAX)));
}

#[test]
fn invalid_prices_are_rejected() {
    let kind = RequestKind { weight: 1.0, value: 1.0, cost: 1.0, hold: 1.0 };
    let budgets = Budgets { rate: 1.0, cost: 1.0, hold: None };
    let solve = |kinds: &[RequestKind], budgets: Budgets| solve_fluid_lp(kinds, &budgets).map(drop);
    assert_eq!(solve(&[], budgets), Err(PriceError::Empty));
    assert_eq!(solve(&[RequestKind { weight: 0.0, ..kind }], budgets), Err(PriceError::Empty));
    assert_eq!(solve(&[kind; 65], budgets), Err(PriceError::TooManyKinds(65)));
    assert!(matches!(
        solve(&[RequestKind { cost: f64::NAN, ..kind }], budgets),
        Err(PriceError::NotANumber("cost", _))
    ));
    assert!(solve(&[kind], Budgets { hold: Some(-1.0), ..budgets }).is_err());
    assert!(Prices::new(0.0, f64::INFINITY, 0.0).is_err() && Prices::new(0.0, 0.0, -0.1).is_err());
    let refiner = |budgets, options| Refiner::new(&[kind], &budgets, options).map(drop);
    let options = RefinerOptions::default();
    assert_eq!(refiner(budgets, RefinerOptions { sample: 0, ..options }), Err(PriceError::Sample(0)));
    assert_eq!(refiner(budgets, RefinerOptions { slots: Some(3), ..options }), Err(PriceError::Slots));
    assert_eq!(refiner(Budgets { hold: Some(3.0), ..budgets }, options), Err(PriceError::Slots));
}

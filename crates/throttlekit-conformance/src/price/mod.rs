//! `bid-price`
mod mulberry;
pub mod policy;
pub mod three_axes;
pub mod two_axes;
pub use mulberry::Mulberry;
#[cfg(test)]
mod t {
    use super::policy::*;
    use super::three_axes::*;
    use super::*;
    use throttlekit_core::price::*;
    #[test]
    fn t() {
        let w = HOG;
        for seeds in [30, 300] {
            println!("A {:?}", w.regret(seeds, || w.solution().duals));
        }
        let k = w.kinds;
        let modes = [(0, false), (0, true), (1, true), (2, true), (3, true)];
        let h = |i: usize, hold: f64, weight: f64| Kind { hold, weight, ..k[i] };
        for (n, prior) in [
            ("holds swapped weights", vec![h(0, 15., 200.), h(1, 200., 1800.)]),
            ("correct", vec![h(0, 15., 1800.), h(1, 200., 200.)]),
            (
                "value100",
                vec![Kind { value: 1000., ..h(0, 15., 1800.) }, Kind { value: 1000., ..h(1, 200., 200.) }],
            ),
        ] {
            let p = solve_fluid_lp(&prior, &w.budgets()).unwrap().duals;
            print!("{n}: {p:?} static {:.4}", w.regret(30, || p));
            for sample in [25, 50, 100] {
                for (wait, told) in modes {
                    WAIT.store(wait, std::sync::atomic::Ordering::Relaxed);
                    let b = w.budgets();
                    print!(
                        " {:.4}",
                        w.regret(30, || Refined {
                            refiner: Refiner::new(&prior, &b, RefinerOptions { sample, slots: Some(10) })
                                .unwrap(),
                            told
                        })
                    );
                }
                print!(" / ");
            }
            println!();
        }
        let (kinds, b) = two_axes::workload();
        for (n, prior) in [
            ("correct", kinds.to_vec()),
            ("rejecting", kinds.map(|k| Kind { value: k.value * 20., weight: k.weight, ..k }).to_vec()),
        ] {
            let p = solve_fluid_lp(&prior, &b).unwrap().duals;
            for c in [-1.0, -0.5, 0., 0.5, 0.8, 0.9, 0.95, 0.99, 1.0] {
                print!(
                    "{n} {c}: {p:?} marg {:.4} static {:.4}",
                    two_axes::regret(200, c, || Prices::FREE),
                    two_axes::regret(200, c, || p)
                );
                for sample in [25, 50, 100, 200] {
                    print!(" /{sample}");
                    for (wait, told) in modes {
                        WAIT.store(wait, std::sync::atomic::Ordering::Relaxed);
                        print!(
                            " {:.4}",
                            two_axes::regret(200, c, || Refined {
                                refiner: two_axes::refiner(&prior, RefinerOptions { sample, slots: None })
                                    .unwrap(),
                                told
                            })
                        );
                    }
                }
                println!();
            }
        }
    }
}

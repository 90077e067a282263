use super::*;

#[test]
fn one_seed_is_one_run() {
    for seed in 0..5 {
        let tell = |seed| {
            let mut told = Vec::new();
            let report = replay(seed, None, &mut |line| told.push(line.to_owned()));
            (told, report)
        };
        let (first, report) = tell(seed);
        assert_eq!(tell(seed), (first, report.clone()));
        assert_eq!(run(seed, None), report);
    }
}

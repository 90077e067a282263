use http::{HeaderMap, HeaderName};

use super::*;

const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);

struct Play {
    learned: Learned,
    now: Timestamp,
}

impl Play {
    /// Sixty requests and 6,000 tokens a minute.
    fn new() -> Self {
        let minute = Some(Duration::from_secs(60));
        let limits = [LimitInfo::new(Axis::Rate, 60, minute), LimitInfo::new(Axis::Cost, 6_000, minute)];
        Self { learned: Learned::new(&limits, LearnSettings::default()), now: START }
    }

    fn wait(&mut self, millis: u64) -> &mut Self {
        self.now = self.now + Duration::from_millis(millis);
        self
    }

    fn start(&mut self, tokens: u64) -> Result<Sent, u64> {
        self.learned.start(tokens, self.now).map_err(|wait| wait.as_millis() as u64)
    }

    fn report(&mut self, sent: Sent, status: u16, pairs: &[(&'static str, &str)]) {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(HeaderName::from_static(name), value.parse().expect("a value"));
        }
        let status = StatusCode::from_u16(status).expect("a status");
        self.learned.report(&Reported::of(status, &headers, b"", self.now), sent, self.now);
    }

    fn refuse(&mut self, delay: &str) {
        let sent = self.start(1).expect("no pause");
        self.report(sent, 429, &[("retry-after", delay)]);
    }
}

#[test]
fn without_reports_nothing_waits() {
    let mut play = Play::new();
    (0..10_000).for_each(|_| assert!(play.start(1_000_000).is_ok()));
}

#[test]
fn a_refusal_pauses_for_its_delay_and_no_longer_than_the_maximum() {
    for (delay, pause) in [("7", 7_000), ("60", 60_000), ("3600", 60_000), ("86400", 60_000)] {
        let mut play = Play::new();
        play.refuse(delay);
        assert_eq!(play.start(1), Err(pause), "{delay}");
        assert_eq!(play.wait(pause - 1).start(1), Err(1));
        assert!(play.wait(1).start(1).is_ok());
    }
}

#[test]
fn refusals_without_a_delay_back_off_and_double() {
    let mut play = Play::new();
    for pause in [1_000, 2_000, 4_000, 8_000] {
        let sent = play.start(1).expect("no pause");
        play.report(sent, 529, &[]);
        assert_eq!(play.start(1), Err(pause));
        play.wait(pause);
    }
    let sent = play.start(1).expect("no pause");
    play.report(sent, 200, &[]);
    let sent = play.start(1).expect("no pause");
    play.report(sent, 529, &[]);
    assert_eq!(play.start(1), Err(1_000), "a success ends the sequence");
}

#[test]
fn calls_in_flight_lower_the_limit_once() {
    let mut play = Play::new();
    let sent: Vec<Sent> = (0..10).map(|_| play.start(1).expect("no pause")).collect();
    play.report(sent[0], 200, &[]);
    sent.iter().skip(1).for_each(|sent| play.report(*sent, 429, &[]));
    assert_eq!(play.learned.requests_per_minute(play.now), Some(53), "an eighth less");
    assert_eq!(play.start(1), Err(1_000));
}

#[test]
fn late_refusals_do_not_extend_a_stop_beyond_the_maximum() {
    let mut play = Play::new();
    let sent: Vec<Sent> = (0..4).map(|_| play.start(1).expect("no pause")).collect();
    for sent in sent {
        play.report(sent, 429, &[("retry-after", "59")]);
        assert!(play.start(1).is_err());
        play.wait(14_000);
    }
    assert_eq!(play.wait(3_999).start(1), Err(1));
    assert!(play.wait(1).start(1).is_ok(), "calls have waited for a minute");
    assert!(play.start(1).is_err(), "only one");
}

#[test]
fn units_that_are_left_bound_the_calls_started_since() {
    let mut play = Play::new();
    let first = play.start(1).expect("no pause");
    let _in_flight = play.start(1).expect("no pause");
    let left = [("x-ratelimit-remaining-requests", "3"), ("x-ratelimit-reset-requests", "7s")];
    play.report(first, 200, &left);
    assert!(play.start(1).is_ok() && play.start(1).is_ok(), "one of three was started before the report");
    assert_eq!(play.start(1), Err(7_000));
    assert_eq!(play.wait(6_999).start(1), Err(1));
    assert!(play.wait(1).start(1).is_ok());
}

#[test]
fn tokens_that_are_left_bound_the_estimates() {
    let mut play = Play::new();
    let sent = play.start(100).expect("no pause");
    play.report(sent, 200, &[("x-ratelimit-remaining-tokens", "500"), ("x-ratelimit-reset-tokens", "9s")]);
    assert!(play.start(400).is_ok());
    assert_eq!(play.start(101), Err(9_000));
    assert!(play.start(100).is_ok());
}

#[test]
fn a_bucket_refills_one_by_one() {
    let mut play = Play::new();
    let sent = play.start(1).expect("no pause");
    let empty = [
        ("x-ratelimit-limit-requests", "60"),
        ("x-ratelimit-remaining-requests", "0"),
        ("x-ratelimit-reset-requests", "1m0s"),
    ];
    play.report(sent, 200, &empty);
    assert_eq!(play.start(1), Err(1_000), "sixty a minute");
    assert!(play.wait(1_000).start(1).is_ok());
    assert_eq!(play.start(1), Err(1_000));
}

#[test]
fn a_lower_limit_applies_at_once_and_a_higher_one_evenly() {
    let mut play = Play::new();
    let limit = |limit: &'static str| [("x-ratelimit-limit-requests", limit)];
    let sent = play.start(1).expect("no pause");
    play.report(sent, 200, &limit("30"));
    assert_eq!(play.learned.requests_per_minute(play.now), Some(30));
    assert!(play.start(1).is_ok());
    assert_eq!(play.start(1), Err(2_000), "one every two seconds");
    let mut seen = Vec::new();
    for _ in 0..4 {
        let sent = play.wait(10_000).start(1).expect("no pause");
        play.report(sent, 200, &limit("1000000"));
        seen.push(play.learned.requests_per_minute(play.now).expect("a ceiling"));
    }
    assert_eq!(seen, [40, 50, 60, 60], "a minute from nothing to the ceiling");
}

#[test]
fn a_higher_limit_than_the_ceiling_changes_nothing() {
    let mut play = Play::new();
    let sent = play.start(1).expect("no pause");
    play.report(
        sent,
        200,
        &[("x-ratelimit-limit-requests", "6000"), ("x-ratelimit-limit-tokens", "999999999999")],
    );
    assert_eq!(
        (play.learned.requests_per_minute(play.now), play.learned.tokens_per_minute(play.now)),
        (Some(60), Some(6_000))
    );
}

#[test]
fn all_is_forgotten_without_information() {
    let mut play = Play::new();
    let sent = play.start(1).expect("no pause");
    play.report(sent, 200, &[("x-ratelimit-limit-requests", "6")]);
    play.wait(599_999);
    assert_eq!(play.learned.requests_per_minute(play.now), Some(6));
    play.wait(1);
    assert_eq!(play.learned.requests_per_minute(play.now), Some(60));
    assert!(play.start(1).is_ok() && play.start(1).is_ok());
}

#[test]
fn a_clock_that_steps_back_extends_no_pause_beyond_the_maximum() {
    let mut play = Play::new();
    play.refuse("30");
    play.now = Timestamp::from_nanos(START.as_nanos() - 3_600_000_000_000);
    assert_eq!(play.start(1), Err(60_000));
    assert!(play.wait(60_000).start(1).is_ok());
}

#[test]
fn a_call_that_is_taken_back_keeps_the_wait_that_ended() {
    let mut play = Play::new();
    play.refuse("60");
    play.wait(1);
    assert!(play.start(1).is_err());
    let late = play.wait(59_000).learned.position();
    play.report(late, 429, &[("retry-after", "60")]);
    let sent = play.wait(1_000).start(1).expect("calls have waited for a minute");
    play.learned.cancel(sent, 1);
    assert!(play.start(1).is_ok(), "nothing was sent");
}

#[test]
fn a_limit_of_zero_admits_one_call_in_each_pause() {
    let mut play = Play::new();
    let mut sent = play.start(1).expect("no pause");
    for _ in 0..5 {
        play.report(sent, 200, &[("x-ratelimit-limit-requests", "0"), ("x-ratelimit-limit-tokens", "0")]);
        let _ = play.start(1);
        assert!(play.start(1).is_err());
        sent = play.wait(60_000).start(1).expect("calls have waited for a minute");
    }
}

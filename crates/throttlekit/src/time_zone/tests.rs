//! Real transitions, and every instant between them, compared with a calendar library.

use std::time::Duration;

use jiff::civil::{Date, date};
use jiff::{ToSpan, Zoned};
use proptest::prelude::*;
use throttlekit_core::Timestamp;
use throttlekit_core::rate::{Cadence, Limit, LocalPeriod, Rule, State, Weekday};

use super::*;

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: LocalPeriod = LocalPeriod::Day;

fn at(zoned: &Zoned) -> Timestamp {
    Timestamp::from_nanos(u64::try_from(zoned.timestamp().as_nanosecond()).unwrap())
}

fn noon(name: &str, day: Date) -> Timestamp {
    at(&day.at(12, 0, 0, 0).in_tz(name).unwrap())
}

fn quota(units: u64, period: LocalPeriod, name: &str) -> Limit {
    Limit::quota(units, Cadence::Local { period, zone: find(name).unwrap() }).unwrap()
}

/// The end of the window that an instant lies in.
fn end(limit: &Limit, now: Timestamp) -> Timestamp {
    limit.decide(&State::default(), 0, now).reset_at
}

/// The length of a local period that contains noon of this date.
fn length(period: LocalPeriod, name: &str, day: Date) -> Duration {
    let limit = quota(1, period, name);
    let end = end(&limit, noon(name, day));
    let mut first = noon(name, day);
    // Back to the first second of the period.
    while self::end(&limit, Timestamp::from_nanos(first.as_nanos() - HOUR.as_nanos() as u64)) == end {
        first = Timestamp::from_nanos(first.as_nanos() - HOUR.as_nanos() as u64);
    }
    while self::end(&limit, Timestamp::from_nanos(first.as_nanos() - 60_000_000_000)) == end {
        first = Timestamp::from_nanos(first.as_nanos() - 60_000_000_000);
    }
    end.since(first)
}

#[test]
fn days_on_which_clocks_change_are_shorter_or_longer() {
    let minutes = |name, year, month, day| length(DAY, name, date(year, month, day)).as_secs() / 60;
    // In the northern hemisphere.
    assert_eq!(minutes("Europe/Berlin", 2026, 3, 29), 23 * 60);
    assert_eq!(minutes("Europe/Berlin", 2026, 3, 30), 24 * 60);
    assert_eq!(minutes("Europe/Berlin", 2026, 10, 25), 25 * 60);
    assert_eq!(minutes("America/New_York", 2026, 3, 8), 23 * 60);
    assert_eq!(minutes("America/New_York", 2026, 11, 1), 25 * 60);
    // In the southern one: the other way round.
    assert_eq!(minutes("Australia/Sydney", 2026, 4, 5), 25 * 60);
    assert_eq!(minutes("Australia/Sydney", 2026, 10, 4), 23 * 60);
    // By half an hour.
    assert_eq!(minutes("Australia/Lord_Howe", 2026, 4, 5), 24 * 60 + 30);
    assert_eq!(minutes("Australia/Lord_Howe", 2026, 10, 4), 23 * 60 + 30);
    // Clocks skip midnight, or repeat the hour before it.
    assert_eq!(minutes("America/Santiago", 2026, 9, 6), 23 * 60);
    assert_eq!(minutes("America/Santiago", 2026, 4, 4), 25 * 60);
    // At quarters of an hour from UTC, and never changed.
    assert_eq!(minutes("Asia/Kathmandu", 2026, 3, 29), 24 * 60);
}

#[test]
fn months_have_their_days_and_the_hour_that_clocks_change_by() {
    let hours = |starts_on, month, day| {
        let period = LocalPeriod::Month { starts_on };
        length(period, "Europe/Berlin", date(2026, month, day)).as_secs() / 3_600
    };
    assert_eq!([2, 3, 4, 10].map(|month| hours(1, month, 10)), [28 * 24, 31 * 24 - 1, 30 * 24, 31 * 24 + 1]);
    // From the 15th of March to the 14th of April, and from the last of January to that of February.
    assert_eq!(hours(15, 3, 20), 31 * 24 - 1);
    assert_eq!([hours(31, 2, 10), hours(31, 3, 10)], [28 * 24, 31 * 24 - 1]);
}

#[test]
fn a_day_that_a_place_skipped_belongs_to_no_window() {
    // Samoa went from the 29th to the 31st of December 2011.
    let day = quota(1, DAY, "Pacific/Apia");
    let (before, after) =
        (noon("Pacific/Apia", date(2011, 12, 29)), noon("Pacific/Apia", date(2011, 12, 31)));
    assert_eq!(end(&day, before), Timestamp::from_millis(1_325_239_200_000));
    assert_eq!(end(&day, after).since(end(&day, before)), 24 * HOUR);
}

#[test]
fn a_zone_is_found_once_under_all_of_its_spellings() {
    let zone = find("Europe/Berlin").unwrap();
    assert_eq!(zone.name(), Some("Europe/Berlin"));
    let lengths = || FOUND.read().len();
    let before = lengths();
    assert_eq!(find("europe/berlin"), Ok(zone));
    assert!(lengths() >= before && FOUND.read().contains_key("Europe/Berlin"));
    let unknown = find("Europe/Atlantis").unwrap_err();
    assert!(unknown.to_string().contains("`Europe/Atlantis`"), "{unknown}");
    assert!(find("").is_err() && find("Etc/Unknown").is_err());
}

#[test]
fn the_embedded_database_has_the_same_clocks_as_the_system_this_year() {
    let this_year = |zone: &TimeZone| -> Vec<ZoneOffset> {
        offsets(zone)
            .into_iter()
            .filter(|o| (1_767_225_600..1_798_761_600).contains(&o.from_seconds))
            .collect()
    };
    for name in ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"] {
        let embedded = TimeZoneDatabase::bundled().get(name).unwrap();
        assert_eq!(this_year(&embedded), this_year(&db().get(name).unwrap()), "{name}");
        assert_eq!(this_year(&embedded).len(), 2, "{name}");
    }
}

/// Returns the number of a local period by a calendar library: the date on which it begins.
fn begins(period: LocalPeriod, now: &Zoned) -> Date {
    let today = now.date();
    match period {
        LocalPeriod::Week { starts_on } => {
            let day = jiff::civil::Weekday::from_monday_zero_offset(starts_on as i8).unwrap();
            today.tomorrow().unwrap().nth_weekday(-1, day).unwrap()
        }
        LocalPeriod::Month { starts_on } => {
            let on = |month: Date| {
                month
                    .first_of_month()
                    .with()
                    .day((starts_on as i8).min(month.days_in_month()))
                    .build()
                    .unwrap()
            };
            if today >= on(today) {
                on(today)
            } else {
                on(today.first_of_month().checked_sub(1.day()).unwrap())
            }
        }
        _ => today,
    }
}

const ZONES: [&str; 10] = [
    "Europe/Berlin",
    "America/New_York",
    "Australia/Sydney",
    "Australia/Lord_Howe",
    "America/Santiago",
    "Africa/Casablanca",
    "Africa/Cairo",
    "Asia/Kathmandu",
    "Pacific/Apia",
    "Antarctica/Troll",
];

fn periods() -> impl Strategy<Value = LocalPeriod> {
    use Weekday::*;
    let weekday = prop::sample::select(vec![Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday]);
    prop_oneof![
        Just(DAY),
        weekday.prop_map(|starts_on| LocalPeriod::Week { starts_on }),
        (1_u8..=31).prop_map(|starts_on| LocalPeriod::Month { starts_on }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]
    #[test]
    fn windows_are_the_periods_that_a_calendar_library_finds(
        // From 2015, after the last clocks that were set back over midnight by minutes, until 2035.
        second in 1_420_070_400_i64..2_051_222_400, place in 0..ZONES.len(), period in periods(),
    ) {
        let zone = TimeZone::get(ZONES[place]).unwrap();
        let now = jiff::Timestamp::from_second(second).unwrap().to_zoned(zone.clone());
        let limit = quota(1, period, ZONES[place]);
        let end = end(&limit, at(&now));
        prop_assert!(at(&now) < end);
        let last = jiff::Timestamp::from_nanosecond(i128::from(end.as_nanos()) - 1).unwrap().to_zoned(zone.clone());
        let next = jiff::Timestamp::from_nanosecond(end.as_nanos().into()).unwrap().to_zoned(zone);
        prop_assert_eq!(begins(period, &now), begins(period, &last), "the last instant is of the same period");
        prop_assert!(begins(period, &now) < begins(period, &next), "the next instant is of the next one");
    }

    #[test]
    fn a_quota_never_admits_more_than_its_limit_in_a_local_period(
        start in 1_420_070_400_u64..2_051_222_400, place in 0..ZONES.len(), period in periods(),
        steps in prop::collection::vec((0_u64..40_000, 1_u64..4), 1..200),
    ) {
        let limit = quota(5, period, ZONES[place]);
        let zone = TimeZone::get(ZONES[place]).unwrap();
        let (mut state, mut now) = (State::default(), start);
        let mut admitted: BTreeMap<Date, u64> = BTreeMap::new();
        for (step, cost) in steps {
            now += step;
            let moment = jiff::Timestamp::from_second(now as i64).unwrap().to_zoned(zone.clone());
            let used = admitted.entry(begins(period, &moment)).or_default();
            let fits = *used + cost <= 5;
            let decision = limit.check(&mut state, cost, Timestamp::from_millis(now * 1_000));
            prop_assert_eq!(decision.allowed, fits, "{} of 5 are used", used);
            *used += if decision.allowed { cost } else { 0 };
        }
    }
}

use super::*;

const ONLY: Tracking = Tracking { mode: "?", defers: false };

fn carried(record: &str, answer: Value) -> Value {
    let bulk = |text: &[u8]| Value::BulkString(text.to_vec());
    Value::Array(vec![bulk(SINCE), bulk(record.as_bytes()), answer])
}

#[test]
fn every_slot_has_a_record_of_its_own() {
    assert!((0..SLOTS).all(|slot| slot_of(record_at(slot, true)) == slot));
    assert_eq!(record_at(7, false), "tk:{%since}");
}

#[test]
fn a_known_record_is_sent_along_and_a_plain_reply_confirms_it() {
    let records = Records::default();
    let first = records.question(3, ONLY);
    assert_eq!(first.arg(ALONE), "?");
    let told = records.read(&first, carried("ab 70 0", Value::Int(5)));
    assert_eq!(told, Told::of(Value::Int(5), Since::Instant(70)));
    let again = records.question(3, ONLY);
    assert_eq!(again.arg(ALONE), "ab 70 0");
    let plain = Value::Array(vec![Value::Int(1), Value::Int(2), Value::Int(3)]);
    let told = records.read(&again, plain.clone());
    assert_eq!(told, Told::of(plain, Since::Instant(70)));
    assert_eq!(records.question(4, Tracking { mode: "?w", ..ONLY }).arg(ALONE), "?w", "another slot");
    assert_eq!(records.question(3, ONLY).arg("tk:{%since7}"), "tk:{%since7} ab 70 0", "in a cluster");
    assert_eq!(
        records.question(3, Tracking { mode: "?a", ..ONLY }).arg(ALONE),
        "?a",
        "a node that is being given the slot"
    );
}

#[test]
fn a_response_is_unchecked_only_if_the_script_says_so() {
    let records = Records::default();
    let defers = Tracking { defers: true, ..ONLY };
    let first = records.question(0, defers);
    assert_eq!(first.arg(ALONE), "?", "nothing to defer to");
    assert!(first.check().is_none());
    records.read(&first, carried("ab 70 0 0", Value::Int(5)));
    let question = records.question(0, defers);
    assert_eq!(question.arg(ALONE), "+ab 70 0 0");
    assert_eq!(question.arg("tk:{%since7}"), "tk:{%since7} +ab 70 0 0");
    assert_eq!(question.check().unwrap().0.arg(ALONE), "ab 70 0 0");
    let marked = Value::Array(vec![Value::BulkString(UNCHECKED.to_vec()), Value::Int(6)]);
    let told = records.read(&question, marked);
    assert_eq!(told, Told { unchecked: true, ..Told::of(Value::Int(6), Since::Instant(70)) });
    assert!(!records.read(&question, Value::Int(6)).unchecked);
}

#[test]
fn another_record_on_the_same_connection_is_a_loss_and_a_missing_one_is_unknown() {
    let records = Records::default();
    records.read(&records.question(0, ONLY), carried("ab 70 0", Value::Int(5)));
    let told = records.read(&records.question(0, ONLY), carried("ab 90 4", Value::Int(6)));
    assert_eq!((told.since, told.changed), (Since::Instant(90), true));
    let told = records.read(&records.question(0, ONLY), carried("", Value::Int(7)));
    assert_eq!((told.value, told.since), (Value::Int(7), Since::Unknown));
}

/// Replies to concurrent first calls each have the record: their callers share its checks all the same.
#[test]
fn the_same_record_keeps_its_checks_and_a_new_one_is_one_loss() {
    let records = Records::default();
    let (first, concurrent) = (records.question(0, ONLY), records.question(0, ONLY));
    records.read(&first, carried("ab 70 0 0", Value::Int(5)));
    let (old, also_old) = (records.question(0, ONLY), records.question(0, ONLY));
    assert!(!records.read(&concurrent, carried("ab 70 0 0", Value::Int(5))).changed);
    let checks = |question: &Question| question.check().unwrap().1;
    assert!(Arc::ptr_eq(&checks(&old), &checks(&records.question(0, ONLY))));
    let losses = [&old, &also_old].map(|old| records.read(old, carried("ab 90 0 4", Value::Int(6))).changed);
    assert_eq!(losses, [true, false]);
    assert!(!Arc::ptr_eq(&checks(&old), &checks(&records.question(0, ONLY))));
}

#[test]
fn responses_are_bounded_until_the_longest_limit_has_expired_and_not_one_microsecond_longer() {
    let lineage = Lineage::default();
    let at = |now, remembers, since| {
        lineage.answered(Timestamp::from_micros(now), remembers, since);
        lineage.is_doubted()
    };
    assert!(!at(1_000, 100, Since::Instant(-9_000)));
    assert!(!at(1_000, 100, Since::Instant(900)));
    assert!(at(1_000, 100, Since::Instant(901)));
    assert!(at(1_000, 500, Since::Instant(901)));
    assert!(at(1_400, 100, Since::Instant(901)), "a longer limit was asked about before");
    assert!(!at(1_401, 100, Since::Instant(901)));
    assert!(at(1_500, 100, Since::Unknown));
    assert!(!at(1_600, 100, Since::Ever));
    assert!(at(1_600, u64::MAX, Since::Instant(5)));
}

use super::*;

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
    let first = records.question(3, "?");
    assert_eq!(first.arg(ALONE), "?");
    let told = records.read(first, carried("ab 70 0", Value::Int(5)));
    assert_eq!(told, Told { value: Value::Int(5), since: Since::Instant(70), changed: false });
    let again = records.question(3, "?");
    assert_eq!(again.arg(ALONE), "ab 70 0");
    let plain = Value::Array(vec![Value::Int(1), Value::Int(2), Value::Int(3)]);
    let told = records.read(again, plain.clone());
    assert_eq!(told, Told { value: plain, since: Since::Instant(70), changed: false });
    assert_eq!(records.question(4, "?w").arg(ALONE), "?w", "another slot");
    assert_eq!(records.question(3, "?").arg("tk:{%since7}"), "tk:{%since7} ab 70 0", "in a cluster");
    assert_eq!(records.question(3, "?a").arg(ALONE), "?a", "a node that is being given the slot");
}

#[test]
fn another_record_on_the_same_connection_is_a_loss_and_a_missing_one_is_unknown() {
    let records = Records::default();
    records.read(records.question(0, "?"), carried("ab 70 0", Value::Int(5)));
    let told = records.read(records.question(0, "?"), carried("ab 90 4", Value::Int(6)));
    assert_eq!((told.since, told.changed), (Since::Instant(90), true));
    let told = records.read(records.question(0, "?"), carried("", Value::Int(7)));
    assert_eq!((told.value, told.since), (Value::Int(7), Since::Unknown));
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

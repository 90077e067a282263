//! Bytes as existing clients write and read them. Those of the frozen contract were written by the Python client.

use std::fmt::Debug;

use prost::Message;
use throttlekit_proto::{envoy, v1};

/// What a client knows that was written before the additions.
#[derive(Clone, PartialEq, Message)]
struct OldDecision {
    #[prost(bool, tag = "1")]
    allowed: bool,
    #[prost(int64, tag = "2")]
    limit: i64,
    #[prost(int64, tag = "3")]
    remaining: i64,
    #[prost(int64, tag = "4")]
    reset_at: i64,
    #[prost(int64, tag = "5")]
    retry_after_ms: i64,
}

/// Asserts that the message is these bytes, and these bytes are the message.
#[track_caller]
fn assert_wire<M: Message + Default + PartialEq + Debug>(message: &M, bytes: &[u8]) {
    assert_eq!(message.encode_to_vec(), bytes);
    assert_eq!(&M::decode(bytes).expect("bytes that decode"), message);
}

#[test]
fn asks_are_read_as_the_python_client_writes_them() {
    let check = v1::CheckRequest { policy: "api".into(), key: "alice".into(), cost: 3, keys: vec![] };
    assert_wire(&check, b"\x0a\x03api\x12\x05alice\x18\x03");
    let many = v1::CheckManyRequest {
        policy: "api".into(),
        keys: vec!["a".into(), "b".into()],
        cost: 1,
        others: vec![],
    };
    assert_wire(&many, b"\x0a\x03api\x12\x01a\x12\x01b\x18\x01");
    let admit = v1::AdmitRequest {
        policy: "llm".into(),
        key: "k".into(),
        cost: 100,
        hold: 1500,
        value: 2,
        ..Default::default()
    };
    assert_wire(&admit, b"\x0a\x03llm\x12\x01k\x18\x64\x20\xdc\x0b\x28\x02");
    let release = v1::ReleaseRequest { lease_id: "l1".into(), dropped: true, ..Default::default() };
    assert_wire(&release, b"\x0a\x02l1\x10\x01");
    let heartbeat = v1::HeartbeatRequest { lease_ids: vec!["l1".into(), "l2".into()] };
    assert_wire(&heartbeat, b"\x0a\x02l1\x0a\x02l2");
}

#[test]
fn answers_are_written_as_the_python_client_reads_them() {
    let decision = v1::Decision {
        allowed: true,
        limit: 10,
        remaining: 7,
        reset_at: 1_700_000_000_123,
        retry_after_ms: 250,
        ..Default::default()
    };
    let check = v1::CheckResponse { decision: Some(decision) };
    assert_wire(&check, b"\x0a\x10\x08\x01\x10\x0a\x18\x07\x20\xfb\xd0\x95\xff\xbc\x31\x28\xfa\x01");
    let admit = v1::AdmitResponse {
        decision: Some(v1::Decision { limit: 4, ..Default::default() }),
        lease_id: "l1".into(),
        lease_expires_at: 1_700_000_002_000,
        binding_axis: "rate".into(),
        policy_denied: true,
        ..Default::default()
    };
    assert_wire(&admit, b"\x0a\x02\x10\x04\x12\x02l1\x18\xd0\xdf\x95\xff\xbc\x31\x22\x04rate\x28\x01");
}

#[test]
fn reserving_is_spoken_as_the_python_client_speaks_it() {
    let caller = v1::Caller { domain: "d".into(), client_id: "c".into(), region: "eu".into(), priority: 1 };
    let reserve = v1::ReserveRequest {
        policy: "fleet".into(),
        caller: Some(caller),
        wants: 64,
        has: 2,
        used: 30,
        axis: v1::Axis::TokenBudget.into(),
        ..Default::default()
    };
    let asked = b"\x0a\x05fleet\x12\x0c\x0a\x01d\x12\x01c\x1a\x02eu\x20\x01\x18\x40\x20\x02\x28\x1e\x30\x03";
    assert_wire(&reserve, asked);
    let lease = v1::Lease {
        capacity: 64,
        expiry_ms: 1_700_000_001_000,
        refresh_interval_ms: 500,
        safe_capacity: 16,
        limit: 1000,
        ..Default::default()
    };
    let lent = b"\x0a\x11\x08\x40\x10\xe8\xd7\x95\xff\xbc\x31\x18\xf4\x03\x20\x10\x30\xe8\x07";
    assert_wire(&v1::ReserveResponse { lease: Some(lease) }, lent);
}

#[test]
fn an_old_client_reads_a_decision_with_additions() {
    let decision = v1::Decision {
        allowed: false,
        limit: 10,
        remaining: 2,
        reset_at: 1_700_000_000_123,
        retry_after_ms: 250,
        retry: v1::Retry::After.into(),
        guarantee: "bounded".into(),
        overshoot_bound: 64,
        binding_axis: "rate".into(),
        shadow_denied: true,
        limit_name: "daily".into(),
    };
    let old = OldDecision::decode(&decision.encode_to_vec()[..]).expect("an old client that can read");
    let known = OldDecision {
        allowed: false,
        limit: 10,
        remaining: 2,
        reset_at: 1_700_000_000_123,
        retry_after_ms: 250,
    };
    assert_eq!(old, known);
}

#[test]
fn a_new_client_reads_a_decision_without_additions() {
    let old = OldDecision { allowed: true, limit: 10, ..Default::default() };
    let decision = v1::Decision::decode(&old.encode_to_vec()[..]).expect("a new client that can read");
    assert!(decision.allowed);
    assert_eq!(decision.retry(), v1::Retry::Unspecified);
    assert_eq!(decision.guarantee, "");
}

#[test]
fn additions_have_their_numbers() {
    let decision = v1::Decision {
        retry: v1::Retry::Never.into(),
        guarantee: "exact".into(),
        overshoot_bound: 5,
        binding_axis: "cost".into(),
        shadow_denied: true,
        limit_name: "team".into(),
        ..Default::default()
    };
    let written = b"\xa0\x06\x03\xaa\x06\x05exact\xb0\x06\x05\xba\x06\x04cost\xc0\x06\x01\xca\x06\x04team";
    assert_wire(&decision, written);
    let debit = v1::DebitRequest { stream: b"0123456789abcdef"[..].into(), number: 7, ..Default::default() };
    assert_wire(&debit, b"\xa2\x06\x100123456789abcdef\xa8\x06\x07");
    let others = vec![v1::Keys { keys: vec!["acme".into()] }, v1::Keys::default()];
    let many = v1::CheckManyRequest { others, ..Default::default() };
    assert_wire(&many, b"\xa2\x06\x06\x0a\x04acme\xa2\x06\x00");
}

#[test]
fn a_settled_cost_of_nothing_differs_from_no_settlement() {
    let free = v1::ReleaseRequest { actual_cost: Some(0), ..Default::default() };
    assert_wire(&free, b"\xa0\x06\x00");
    assert_wire(&v1::ReleaseRequest::default(), b"");
}

#[test]
fn envoys_ask_is_read() {
    let entries = || vec![envoy::Entry { key: "path".into(), value: "/a".into() }];
    let limit = envoy::RateLimitOverride { requests_per_unit: 9, unit: envoy::RateLimitUnit::Minute.into() };
    let checked_only = envoy::RateLimitDescriptor {
        entries: entries(),
        limit: Some(limit),
        hits_addend: Some(0),
        ..Default::default()
    };
    let charged = envoy::RateLimitDescriptor { entries: entries(), ..Default::default() };
    let given_back =
        envoy::RateLimitDescriptor { hits_addend: Some(5), is_negative_hits: true, ..charged.clone() };
    let request = envoy::RateLimitRequest {
        domain: "web".into(),
        descriptors: vec![checked_only, charged, given_back],
        hits_addend: 2,
    };
    let asked = b"\x0a\x03web\
        \x12\x14\x0a\x0a\x0a\x04path\x12\x02/a\x12\x04\x08\x09\x10\x02\x1a\x00\
        \x12\x0c\x0a\x0a\x0a\x04path\x12\x02/a\
        \x12\x12\x0a\x0a\x0a\x04path\x12\x02/a\x1a\x02\x08\x05\x20\x01\
        \x18\x02";
    assert_wire(&request, asked);
}

#[test]
fn envoys_answer_is_written() {
    let limit = envoy::RateLimit { requests_per_unit: 9, unit: envoy::Unit::Week.into(), name: "n".into() };
    let status = envoy::DescriptorStatus {
        code: envoy::Code::OverLimit.into(),
        current_limit: Some(limit),
        limit_remaining: 4,
        duration_until_reset: Some(prost_types::Duration { seconds: 3, nanos: 0 }),
    };
    let header = envoy::HeaderValue { key: "h".into(), value: "v".into(), raw_value: b"r"[..].into() };
    let response = envoy::RateLimitResponse {
        overall_code: envoy::Code::OverLimit.into(),
        statuses: vec![status],
        response_headers_to_add: vec![header],
        raw_body: b"no"[..].into(),
        dynamic_metadata: Some(prost_types::Struct::default()),
        ..Default::default()
    };
    let answered = b"\x08\x02\
        \x12\x11\x08\x02\x12\x07\x08\x09\x10\x07\x1a\x01n\x18\x04\x22\x02\x08\x03\
        \x1a\x09\x0a\x01h\x12\x01v\x1a\x01r\
        \x2a\x02no\
        \x32\x00";
    assert_wire(&response, answered);
}

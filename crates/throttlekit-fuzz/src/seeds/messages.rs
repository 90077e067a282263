//! Wire messages of every kind.

use prost::Message;
use throttlekit_proto::envoy::attribute_context::{HttpRequest, Peer, Request};
use throttlekit_proto::envoy::{
    Address, AttributeContext, CheckRequest as AuthorizationRequest, Entry, RateLimitDescriptor,
    RateLimitRequest, SocketAddress,
};
use throttlekit_proto::v1::session_call::Call;
use throttlekit_proto::v1::{
    AdmitRequest, BudgetChange, Caller, CheckManyRequest, CheckRequest, CostHint, DebitRequest, DrainRequest,
    GetConfigRequest, GrantRequest, HeartbeatRequest, Keys, LeaseFilter, LimitChanges, ListLeasesRequest,
    ListOverridesRequest, ListPlansRequest, Override, PeekRequest, Plan, RateChange, ReleaseLeasesRequest,
    ReleaseRequest, ReloadRequest, RemoveOverrideRequest, RemovePlanRequest, ReserveRequest, ResetRequest,
    Returned, SessionCall, SessionRequest, SetLogFilterRequest, SetOverrideRequest, SetPlanRequest,
};

use super::Seeds;

/// The names in `policies.yaml`.
const POLICIES: &str = "abcdefghijklmnopqrstuvwx";

/// Returns messages by the method that takes them.
pub fn messages() -> Vec<(&'static str, Vec<u8>)> {
    let asks = POLICIES.chars().flat_map(|policy| asks(&policy.to_string()));
    let envoy = envoy().into_iter().map(|message| ("ShouldRateLimit", message));
    let authorizations = POLICIES.chars().flat_map(|policy| authorizations(&policy.to_string()));
    let authorizations = authorizations.map(|message| ("Authorization", message));
    asks.chain(ends()).chain(admin()).chain(envoy).chain(authorizations).collect()
}

/// Actions of operators.
fn admin() -> [(&'static str, Vec<u8>); 13] {
    let (policy, key) = (|| "a".to_owned(), || "k".to_owned());
    let rates = vec![RateChange { limit: 9, burst: 3, per_ms: 1_000, ..RateChange::default() }];
    let budgets = vec![BudgetChange { name: "team".into(), budget: 7 }];
    let limits = LimitChanges { rates, budgets, unlimited: true };
    let plan = Plan { policy: policy(), name: "gold".into(), limits: Some(limits.clone()), assigned: 0 };
    let one = Override { policy: policy(), key: key(), limits: Some(limits), ..Override::default() };
    let set_override = SetOverrideRequest { r#override: Some(one), for_ms: 1_000 };
    let list_overrides = ListOverridesRequest { policy: policy(), prefix: key(), ..Default::default() };
    let filter = LeaseFilter { policy: policy(), key: key(), ..LeaseFilter::default() };
    let leases = ListLeasesRequest { filter: Some(filter.clone()), page_size: 2, page_token: key() };
    let grant = GrantRequest { policy: policy(), key: key(), keys: vec![key()], units: 2, id: "i".into() };
    [
        ("Grant", grant.encode_to_vec()),
        ("SetOverride", set_override.encode_to_vec()),
        ("RemoveOverride", RemoveOverrideRequest { policy: policy(), key: key() }.encode_to_vec()),
        ("ListOverrides", list_overrides.encode_to_vec()),
        ("SetPlan", SetPlanRequest { plan: Some(plan) }.encode_to_vec()),
        ("RemovePlan", RemovePlanRequest { policy: policy(), name: "gold".into() }.encode_to_vec()),
        ("ListPlans", ListPlansRequest { policy: policy() }.encode_to_vec()),
        ("ListLeases", leases.encode_to_vec()),
        ("ReleaseLeases", ReleaseLeasesRequest { filter: Some(filter) }.encode_to_vec()),
        ("SetLogFilter", SetLogFilterRequest { filter: "info".into() }.encode_to_vec()),
        ("Drain", DrainRequest {}.encode_to_vec()),
        ("Reload", ReloadRequest {}.encode_to_vec()),
        ("GetConfig", GetConfigRequest {}.encode_to_vec()),
    ]
}

pub(super) fn seeds() -> Seeds {
    let inputs = messages().into_iter().map(|(_, message)| message).collect();
    let words: [&[u8]; 16] = [
        b"\x0a\x01a",
        b"\x0a\x01k",
        b"\x0a\x01q",
        b"\x12\x01k",
        b"\x12\x04acme",
        b"\x12\x04root",
        b"\x12\x00",
        b"\x18\x00",
        b"\x18\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x20\x80\x80\x80\x80\x80\x80\x80\x80\x40",
        b"\x28\x05",
        b"\xa2\x06\x01z",
        b"\xb2\x06\x01\x00",
        b"\x1b\x1c",
        b"\xff\xff\xff\xff\x0f",
    ];
    Seeds { inputs, words: words.to_vec() }
}

fn asks(policy: &str) -> [(&'static str, Vec<u8>); 8] {
    let (policy, key) = (policy.to_owned(), "k".to_owned());
    let keys = vec!["z".to_owned()];
    let own = CheckRequest { policy: policy.clone(), key: key.clone(), cost: 3, keys: keys.clone() };
    let many = vec!["k".to_owned(), "root".to_owned(), "vip".to_owned()];
    let others = many.iter().map(|_| Keys { keys: keys.clone() }).collect();
    let many = CheckManyRequest { policy: policy.clone(), keys: many, cost: 2, others };
    let peek = PeekRequest { policy: policy.clone(), key: key.clone(), keys: keys.clone() };
    let debit = DebitRequest {
        policy: policy.clone(),
        key: key.clone(),
        tokens: 40,
        stream: vec![7; 16].into(),
        number: 1,
        keys: keys.clone(),
        ..Default::default()
    };
    let reset = ResetRequest { policy: policy.clone(), key: key.clone(), keys: keys.clone() };
    let calls = [Call::Check(own.clone()), Call::Debit(debit.clone()), Call::Peek(peek.clone())];
    let calls = calls.into_iter().zip(1..).map(|(call, id)| SessionCall { id, call: Some(call) }).collect();
    let session = SessionRequest { calls, deadline_ms: 50 };
    let admit = AdmitRequest {
        policy: policy.clone(),
        key: key.clone(),
        cost: 5,
        hold: 20,
        value: 9,
        keys: keys.clone(),
        wait_ms: 1,
        priority: 1,
        hint: Some(CostHint { input_tokens: 3, max_tokens: Some(8), class: "small".into() }),
    };
    let caller = Caller { domain: "d".into(), client_id: "c".into(), region: "r".into(), priority: 1 };
    let returned = Returned { return_id: "a".into(), units: 3, epoch: String::new() };
    let reserve = ReserveRequest {
        policy,
        caller: Some(caller),
        wants: 10,
        has: 1,
        used: 2,
        axis: 1,
        returned: Some(returned),
        key,
        keys,
        least: 2,
    };
    [
        ("Check", own.encode_to_vec()),
        ("CheckMany", many.encode_to_vec()),
        ("Peek", peek.encode_to_vec()),
        ("Debit", debit.encode_to_vec()),
        ("Admit", admit.encode_to_vec()),
        ("Reserve", reserve.encode_to_vec()),
        ("Reset", reset.encode_to_vec()),
        ("Session", session.encode_to_vec()),
    ]
}

/// One letter names a lease that was granted before.
fn ends() -> Vec<(&'static str, Vec<u8>)> {
    let release = |how: u8| ReleaseRequest {
        lease_id: String::from(char::from(b'a' + how)),
        dropped: how == 1,
        actual_cost: Some(i64::from(how) * 7),
        ignored: how == 2,
        latency_ms: i64::from(how) * 11,
    };
    let heartbeats = HeartbeatRequest { lease_ids: vec!["a".into(), "b".into(), "c".into(), "0".repeat(32)] };
    let debit = DebitRequest { policy: "k".into(), tokens: 30, lease_id: "a".into(), ..Default::default() };
    let mut ends: Vec<_> = (0..4).map(|how| ("Release", release(how).encode_to_vec())).collect();
    ends.extend([("Heartbeat", heartbeats.encode_to_vec()), ("Debit", debit.encode_to_vec())]);
    ends
}

/// By a key, by a header, and by the client's address.
fn authorizations(policy: &str) -> Vec<Vec<u8>> {
    let settings: [&[(&str, &str)]; 3] = [&[("key", "k")], &[("key_header", "x-user")], &[("cost", "3")]];
    let one = |settings: &&[(&str, &str)]| {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let socket = SocketAddress { address: "10.1.2.3".into() };
        let source = Peer { address: Some(Address { socket_address: Some(socket) }) };
        let headers = [("x-user".to_owned(), "acme".into())].into();
        let attributes = AttributeContext {
            source: Some(source),
            request: Some(Request { http: Some(HttpRequest { headers }) }),
            context_extensions: settings.iter().chain(&[("policy", policy)]).map(owned).collect(),
        };
        AuthorizationRequest { attributes: Some(attributes) }.encode_to_vec()
    };
    settings.iter().map(one).collect()
}

fn envoy() -> Vec<Vec<u8>> {
    let lists: [&[(&str, &str)]; 8] = [
        &[("k", "x")],
        &[("k", "vx")],
        &[("k", "v")],
        &[("k", "x"), ("l", "y")],
        &[("k", "x"), ("l", "y"), ("m", "xy")],
        &[("n", "acme")],
        &[("q", "x")],
        &[("s", "")],
    ];
    let one = |list: &[(&str, &str)]| {
        let entries =
            list.iter().map(|(key, value)| Entry { key: (*key).into(), value: value.to_string().into() });
        RateLimitDescriptor { entries: entries.collect(), hits_addend: Some(2), ..Default::default() }
    };
    let mut requests = Vec::new();
    for domain in ["d", "t"] {
        for list in lists {
            requests.push(RateLimitRequest {
                domain: domain.into(),
                descriptors: vec![one(list)],
                hits_addend: 3,
            });
        }
        let all = lists.iter().map(|list| one(list)).collect();
        requests.push(RateLimitRequest { domain: domain.into(), descriptors: all, hits_addend: 0 });
    }
    requests.iter().map(Message::encode_to_vec).collect()
}

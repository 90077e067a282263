//! Messages from anyone, against the APIs without authentication, over an engine in memory with policies of every kind.

mod invariants;
mod scenario;

use prost::Message;
use throttlekit_proto::envoy::RateLimitRequest;
use throttlekit_proto::v1::{
    AdmitRequest, CheckManyRequest, CheckRequest, DebitRequest, ForecastRequest, GetSnapshotRequest,
    HeartbeatRequest, PeekRequest, ReleaseRequest, ReserveRequest, WatchRequest,
};

pub use scenario::{POLICIES, forget};

/// Decodes bytes as each message that a client may send, and sends those that are one. Every answer keeps its laws.
pub fn wire(data: &[u8]) -> bool {
    scenario::with(|world| {
        world.pass(data.len());
        sent::<CheckRequest>(data, |it| world.check(it));
        sent::<CheckManyRequest>(data, |it| world.check_many(it));
        sent::<PeekRequest>(data, |it| world.peek(it));
        sent::<ForecastRequest>(data, |it| world.forecast(it));
        sent::<DebitRequest>(data, |it| world.debit(it));
        sent::<AdmitRequest>(data, |it| world.admit(it));
        sent::<ReleaseRequest>(data, |it| world.release(it));
        sent::<HeartbeatRequest>(data, |it| world.heartbeat(it));
        sent::<ReserveRequest>(data, |it| world.reserve(it));
        sent::<RateLimitRequest>(data, |it| world.should_rate_limit(&it));
        // What these ask does not depend on what they say.
        sent::<GetSnapshotRequest>(data, |_| ());
        sent::<WatchRequest>(data, |_| ());
    })
}

/// What decodes is written and decodes again as itself.
fn sent<M: Message + Default + Clone>(data: &[u8], send: impl FnOnce(M)) {
    let Ok(message) = M::decode(data) else { return };
    let written = message.encode_to_vec();
    let again = M::decode(&*written).expect("what was written decodes");
    assert_eq!(again.encode_to_vec(), written, "it is written differently");
    send(message);
}

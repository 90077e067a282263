//! Untrusted messages against the APIs without authentication, over an engine in memory with policies of
//! every kind.

mod invariants;
mod scenario;

use prost::Message;
use throttlekit_proto::envoy::RateLimitRequest;
use throttlekit_proto::v1::{
    AdmitRequest, CheckManyRequest, CheckRequest, DebitRequest, ForecastRequest, GetSnapshotRequest,
    HeartbeatRequest, PeekRequest, ReleaseRequest, ReserveRequest, WatchRequest,
};

pub use scenario::{POLICIES, forget};

/// Decodes bytes as each message that a client may send, and sends those that decode. Checks the invariants
/// of every response.
pub fn wire(data: &[u8]) -> bool {
    scenario::with(|scenario| {
        scenario.pass(data.len());
        sent::<CheckRequest>(data, |it| scenario.check(it));
        sent::<CheckManyRequest>(data, |it| scenario.check_many(it));
        sent::<PeekRequest>(data, |it| scenario.peek(it));
        sent::<ForecastRequest>(data, |it| scenario.forecast(it));
        sent::<DebitRequest>(data, |it| scenario.debit(it));
        sent::<AdmitRequest>(data, |it| scenario.admit(it));
        sent::<ReleaseRequest>(data, |it| scenario.release(it));
        sent::<HeartbeatRequest>(data, |it| scenario.heartbeat(it));
        sent::<ReserveRequest>(data, |it| scenario.reserve(it));
        sent::<RateLimitRequest>(data, |it| scenario.should_rate_limit(&it));
        // The content of these does not matter.
        sent::<GetSnapshotRequest>(data, |_| ());
        sent::<WatchRequest>(data, |_| ());
    })
}

/// Checks that a decoded message is encoded and decoded again unchanged.
fn sent<M: Message + Default + Clone>(data: &[u8], send: impl FnOnce(M)) {
    let Ok(message) = M::decode(data) else { return };
    let written = message.encode_to_vec();
    let again = M::decode(&*written).expect("what was written decodes");
    assert_eq!(again.encode_to_vec(), written, "it is written differently");
    send(message);
}

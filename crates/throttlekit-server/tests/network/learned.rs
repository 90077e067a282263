//! Calls of `Admit` without a cost, over gRPC: the server learns what to reserve, and the caller may give hints.

use throttlekit_proto::v1::{
    AdmitRequest, AdmitResponse, CostHint, DebitRequest, DebitResponse, ReleaseRequest, ReleaseResponse,
};
use tonic::Code;

use crate::client::Client;
use crate::fair::serve;

const POLICIES: &str = "
version: 1
policies:
  chat: {cost: {budget: 100000, per: 1d}, learn: {}}
";
const ADMIT: &str = "/throttlekit.v1.RateLimiter/Admit";
const DEBIT: &str = "/throttlekit.v1.RateLimiter/Debit";
const RELEASE: &str = "/throttlekit.v1.RateLimiter/Release";

fn work(cost: i64, hint: Option<CostHint>) -> AdmitRequest {
    AdmitRequest { policy: "chat".into(), key: "acme".into(), cost, hint, ..AdmitRequest::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn admit_learns_from_debits_and_releases_and_takes_hints() {
    let (server, _file) = serve(|options| std::fs::write(&options.policies, POLICIES).unwrap()).await;
    let client = Client::connect(server.grpc()).await.unwrap();
    let admit =
        async |cost, hint| -> AdmitResponse { client.call(ADMIT, &[], &work(cost, hint)).await.unwrap() };
    let hint = |input_tokens, max_tokens| CostHint { input_tokens, max_tokens, class: "small".into() };
    assert_eq!(admit(0, None).await.reserved, 2_048, "nothing is known yet");
    for _ in 0..42 {
        let admitted = admit(0, Some(hint(500, None))).await;
        let debit =
            DebitRequest { tokens: 510, lease_id: admitted.lease_id.clone(), ..DebitRequest::default() };
        let debited: DebitResponse = client.call(DEBIT, &[], &debit).await.unwrap();
        assert!(debited.decision.unwrap().allowed);
        let release = ReleaseRequest { lease_id: admitted.lease_id, ..ReleaseRequest::default() };
        let _: ReleaseResponse = client.call(RELEASE, &[], &release).await.unwrap();
    }
    let learned = admit(0, Some(hint(500, None))).await.reserved;
    assert!((505..=510).contains(&learned), "{learned}");
    assert_eq!(admit(0, Some(hint(500, Some(2)))).await.reserved, 502);
    assert_eq!(admit(0, Some(hint(0, Some(0)))).await.reserved, 1);
    assert_eq!(admit(0, None).await.reserved, 2_048, "another class");
    assert_eq!(admit(70, Some(hint(500, None))).await.reserved, 0, "the caller stated a cost");
    for wrong in [hint(-1, None), hint(0, Some(-1)), CostHint { class: "x".repeat(129), ..hint(0, None) }] {
        let refused = client.call::<AdmitResponse>(ADMIT, &[], &work(0, Some(wrong))).await;
        assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument);
    }
}

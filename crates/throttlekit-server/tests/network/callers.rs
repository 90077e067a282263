//! Authentication of callers, over the wire.

use std::sync::Arc;

use throttlekit_proto::v1::{ReserveRequest, ReserveResponse};
use throttlekit_server::internals::access::{Access, Secret, Secrets};
use throttlekit_server::internals::listen::ListenOptions;
use throttlekit_server::policy::AccessSpec;
use tonic::Code;

use crate::client::{CHECK, Client, Failure};
use crate::target::Target;

const RESERVE: &str = "/throttlekit.v1.Fleet/Reserve";

async fn reserve(client: &Client, headers: &[(&'static str, &str)]) -> Result<ReserveResponse, Failure> {
    let ask = ReserveRequest { policy: "lent".into(), key: "k".into(), ..ReserveRequest::default() };
    client.call(RESERVE, headers, &ask).await
}

#[tokio::test]
async fn reserving_is_for_this_machine_or_for_who_has_the_secret() {
    let target = Target::open(ListenOptions::default()).await;
    let client = Client::connect(target.address).await.unwrap();
    assert!(reserve(&client, &[]).await.is_ok());
    let secrets = Secrets { fleet: Secret::of(b"lend me some"), ..Secrets::default() };
    target.access.store(Arc::new(Access::open(secrets)));
    assert_eq!(reserve(&client, &[]).await.unwrap_err().code(), Code::Unauthenticated);
    let wrong = [("x-fleet-secret", "lend me")];
    assert_eq!(reserve(&client, &wrong).await.unwrap_err().code(), Code::Unauthenticated);
    assert!(reserve(&client, &[("x-fleet-secret", "lend me some")]).await.is_ok());
    assert!(reserve(&client, &[("authorization", "Bearer lend me some")]).await.is_ok());
    assert!(client.check("api", "k").await.is_ok());
}

#[tokio::test]
async fn tokens_are_asked_for_and_lists_change_without_a_restart() {
    let spec = |allow: &str| {
        let digest = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae";
        let text = format!("principals: {{foo: {{token_sha256: {digest}, allow: [{allow}]}}}}");
        Access::of(&serde_saphyr::from_str::<AccessSpec>(&text).unwrap()).unwrap()
    };
    let allowed = spec("{endpoints: [check], policies: [api], keys: acme/}");
    let target = Target::start(ListenOptions::default(), allowed).await;
    let client = Client::connect(target.address).await.unwrap();
    let check = async |headers: &[(&'static str, &str)], key: &str| {
        client.check_as(headers, "api", key).await.map_err(|failure| failure.code()).map(|_| ())
    };
    let token = [("authorization", "Bearer foo")];
    assert_eq!(check(&[], "acme/1").await, Err(Code::Unauthenticated));
    assert_eq!(check(&[("authorization", "Bearer bar")], "acme/1").await, Err(Code::Unauthenticated));
    assert_eq!(check(&token, "acme/1").await, Ok(()));
    assert_eq!(check(&token, "other/1").await, Err(Code::PermissionDenied));
    target.access.store(Arc::new(spec("{endpoints: [peek]}")));
    assert_eq!(check(&token, "acme/1").await, Err(Code::PermissionDenied));
}

/// A gateway sends for many over one connection. Bodies that come after their headers were refused are read all the same.
#[tokio::test]
async fn refusals_do_not_end_the_connection_that_others_use_too() {
    let text = "principals: {foo: {token_sha256: 2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae, \
                allow: [{endpoints: [check]}]}}";
    let access = Access::of(&serde_saphyr::from_str::<AccessSpec>(text).unwrap()).unwrap();
    let options = ListenOptions::default();
    let refusals = options.limits.error_resets_max * 2;
    let target = Target::start(options, access).await;
    let client = Client::connect(target.address).await.unwrap();
    for _ in 0..refusals {
        let late = client.late_body(CHECK, &[("authorization", "Bearer bar")]).await;
        assert_eq!(late.unwrap_err().code(), Code::Unauthenticated);
    }
    assert!(client.check_as(&[("authorization", "Bearer foo")], "api", "k").await.is_ok());
}

/// The same over HTTP and gRPC: credentials are missing, and not a right.
#[tokio::test]
async fn reserving_without_the_secret_is_unauthenticated_over_http_as_well() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let (server, _file) = crate::fair::serve(|options| {
        options.secrets = Secrets { fleet: Secret::of(b"lend me some"), ..Secrets::default() };
    })
    .await;
    let status = async |headers: &str| {
        let mut tcp = tokio::net::TcpStream::connect(server.http().unwrap()).await.unwrap();
        let body = r#"{"policy":"lent","key":"k"}"#;
        let request = format!(
            "POST /v1/reserve HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n\
             {headers}content-length: {}\r\n\r\n{body}",
            body.len()
        );
        tcp.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        tcp.read_to_string(&mut answer).await.unwrap();
        (answer[9..12].to_owned(), answer.contains("www-authenticate: Bearer"))
    };
    assert_eq!(status("").await, ("401".into(), true));
    assert_eq!(status("authorization: Bearer wrong\r\n").await, ("401".into(), true));
    assert_eq!(status("authorization: Bearer lend me some\r\n").await, ("200".into(), false));
    let client = Client::connect(server.grpc()).await.unwrap();
    assert_eq!(reserve(&client, &[]).await.unwrap_err().code(), Code::Unauthenticated);
}

//! Connections that close while calls are made: a call that no server has processed is sent again, another is not.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use throttlekit::store::{DebitId, random_name};
use throttlekit_client::Client;
use throttlekit_server::internals::engine::Backend;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::common::{Running, client_of, runtime};

const POLICIES: &str = "
  api: {rate: {algorithm: fixed_window, limit: 1000000, per: 100d}}
  tokens: {cost: {budget: 1000000, per: 100d}}
  slots: {concurrency: {limit: 2, scope: key}}
";
const BUDGET: u64 = 1_000_000;

/// The number of times that a call is sent.
const SENDS_MAX: usize = 4;

/// The response of a connection to its first request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    /// GOAWAY: the request is not processed.
    Goaway,
    /// The stream is refused, and so is the next one; then GOAWAY.
    Refuses,
    /// The connection is lost once the request was sent.
    Lost,
}

/// A server of which the first connections end otherwise than the rest.
struct Closing {
    address: SocketAddr,
    accepted: Arc<AtomicUsize>,
}

impl Closing {
    /// Ends the first `count` connections so, and passes the others on to a server.
    async fn before(server: SocketAddr, count: usize, ends: Ends) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepted = Arc::<AtomicUsize>::default();
        let counted = accepted.clone();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let number = counted.fetch_add(1, SeqCst);
                tokio::spawn(async move {
                    if number < count {
                        // Fails if the client has closed it.
                        let _ = end(client, ends).await;
                    } else if let Ok(mut server) = TcpStream::connect(server).await {
                        let _ = copy_bidirectional(&mut client, &mut server).await;
                    }
                });
            }
        });
        Self { address, accepted }
    }

    fn accepted(&self) -> usize {
        self.accepted.load(SeqCst)
    }

    fn client(&self) -> Client {
        client_of(self.address).sessions(false).build().unwrap()
    }
}

const PREFACE_BYTES: usize = 24;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const ACKNOWLEDGED: u8 = 1;
const EMPTY_SETTINGS: [u8; 9] = [0, 0, 0, SETTINGS, 0, 0, 0, 0, 0];
const SETTINGS_ACKNOWLEDGED: [u8; 9] = [0, 0, 0, SETTINGS, ACKNOWLEDGED, 0, 0, 0, 0];
/// NO_ERROR, and no stream is processed.
const GOAWAY: [u8; 17] = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// RST_STREAM with REFUSED_STREAM.
fn refused([a, b, c, d]: [u8; 4]) -> [u8; 13] {
    [0, 0, 4, 3, 0, a, b, c, d, 0, 0, 0, 7]
}

/// Speaks HTTP/2 until the first requests have arrived, and ends the connection.
async fn end(mut client: TcpStream, ends: Ends) -> std::io::Result<()> {
    client.read_exact(&mut [0; PREFACE_BYTES]).await?;
    client.write_all(&EMPTY_SETTINGS).await?;
    let mut requests = 0;
    loop {
        let mut head = [0; 9];
        client.read_exact(&mut head).await?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        client.read_exact(&mut vec![0; u32::from_be_bytes([0, a, b, c]) as usize]).await?;
        requests += usize::from(kind == HEADERS);
        match (kind, ends) {
            (SETTINGS, _) if flags & ACKNOWLEDGED == 0 => client.write_all(&SETTINGS_ACKNOWLEDGED).await?,
            (HEADERS, Ends::Refuses) if requests <= 2 => client.write_all(&refused(stream)).await?,
            (HEADERS, Ends::Goaway | Ends::Refuses) => {
                client.write_all(&GOAWAY).await?;
                // What is closed with bytes unread is reset.
                while client.read(&mut [0; 1_024]).await? > 0 {}
                return Ok(());
            }
            // Its message.
            (0, Ends::Lost) => return Ok(()),
            _ => {}
        }
    }
}

#[test]
fn a_call_that_no_server_has_processed_is_sent_again() {
    let server = Running::start(POLICIES, Backend::memory());
    runtime().block_on(async {
        for (count, ends) in [(1, Ends::Goaway), (SENDS_MAX - 1, Ends::Goaway), (1, Ends::Refuses)] {
            let key = format!("{count} {ends:?}");
            let closing = Closing::before(server.address(), count, ends).await;
            let answer = closing.client().policy("api").check(&*key).await.unwrap();
            assert!(answer.allowed && answer.outage.is_none(), "{key}: {answer:?}");
            assert_eq!((answer.remaining, closing.accepted()), (BUDGET - 1, count + 1), "{key}");

            let closing = Closing::before(server.address(), count, ends).await;
            let id = DebitId { stream: random_name(), number: 1 };
            let answer = closing.client().policy("tokens").debit((&*key, 5), id).await.unwrap();
            assert!(answer.outage.is_none(), "{key}: {answer:?}");
            assert_eq!(answer.remaining, BUDGET - 5, "{key}");

            let closing = Closing::before(server.address(), count, ends).await;
            let slots = closing.client().policy("slots");
            let admission = slots.admit(&*key).await.unwrap();
            assert!(admission.allowed && admission.outage.is_none(), "{key}: {admission:?}");
            let [second, third] = [slots.admit(&*key).await.unwrap(), slots.admit(&*key).await.unwrap()];
            assert!(second.allowed && !third.allowed, "{key}: the first took one of two slots");
        }
    });
}

#[test]
fn a_call_is_sent_only_so_often() {
    let server = Running::start(POLICIES, Backend::memory());
    runtime().block_on(async {
        let closing = Closing::before(server.address(), SENDS_MAX, Ends::Goaway).await;
        let api = closing.client().policy("api");
        assert!(api.check("k").await.unwrap().outage.is_some());
        assert_eq!(closing.accepted(), SENDS_MAX);
        let answer = api.check("k").await.unwrap();
        assert_eq!((&answer.outage, answer.remaining), (&None, BUDGET - 1), "the first was not charged");
    });
}

#[test]
fn a_call_that_may_have_been_processed_is_not_sent_again() {
    let server = Running::start(POLICIES, Backend::memory());
    runtime().block_on(async {
        let closing = Closing::before(server.address(), 1, Ends::Lost).await;
        let api = closing.client().policy("api");
        assert!(api.check("k").await.unwrap().outage.is_some());
        assert_eq!(closing.accepted(), 1);
        let answer = api.check("k").await.unwrap();
        assert_eq!((&answer.outage, answer.remaining), (&None, BUDGET - 1), "it was not sent again");
    });
}

/// As in a rolling upgrade, but again and again: each connection gets GOAWAY after a few milliseconds.
#[test]
fn no_call_fails_and_none_is_charged_twice_while_connections_close_gracefully() {
    const CLOSES_AFTER: Duration = Duration::from_millis(40);
    const FOR: Duration = Duration::from_secs(2);
    const CALLERS: usize = 16;
    let server = Running::with(POLICIES, Backend::memory(), |options| options.limits.age_max = CLOSES_AFTER);
    runtime().block_on(async {
        for sessions in [true, false] {
            let key = format!("sessions: {sessions}");
            let client =
                server.client().sessions(sessions).deadline(Duration::from_secs(20)).build().unwrap();
            let (api, ends) = (client.policy("api"), Instant::now() + FOR);
            let mut callers = JoinSet::new();
            for _ in 0..CALLERS {
                let (api, key) = (api.clone(), key.clone());
                callers.spawn(async move {
                    let mut allowed = 0;
                    while Instant::now() < ends {
                        let answer = api.check(&*key).await.unwrap();
                        assert!(answer.outage.is_none(), "{key}, call {allowed}: {answer:?}");
                        allowed += u64::from(answer.allowed);
                    }
                    allowed
                });
            }
            let allowed: u64 = callers.join_all().await.iter().sum();
            assert!(allowed > 100, "{key}: {allowed}");
            assert_eq!(api.peek(&*key).await.unwrap().remaining, BUDGET - allowed, "{key}");
        }
    });
}

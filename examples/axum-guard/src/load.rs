//! Clients that ask without pause, and come back soon when they are turned away.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use throttlekit::clock::{BootClock, Clock};
use tokio::net::TcpStream;
use tokio::time::sleep;

/// Sooner than `Retry-After` says, which knows no less than a second: this load is meant to press.
const COME_BACK: Duration = Duration::from_millis(5);

/// How long requests took since someone last looked.
#[derive(Default)]
pub(crate) struct Latencies(Mutex<(u32, Duration)>);

impl Latencies {
    /// How many there were, and their mean.
    pub(crate) fn take(&self) -> (u32, Option<Duration>) {
        let (served, total) = std::mem::take(&mut *self.0.lock().expect("nobody panics here"));
        (served, total.checked_div(served))
    }

    fn add(&self, took: Duration) {
        let mut sum = self.0.lock().expect("nobody panics here");
        *sum = (sum.0 + 1, sum.1 + took);
    }
}

/// Asks until the connection ends.
pub(crate) async fn client(server: SocketAddr, latencies: Arc<Latencies>) {
    let Ok(stream) = TcpStream::connect(server).await else { return };
    let Ok((mut sender, connection)) = handshake(TokioIo::new(stream)).await else { return };
    tokio::join!(
        async {
            let _ = connection.await;
        },
        async { while ask(&mut sender, &latencies).await.is_ok() {} },
    );
}

async fn ask(sender: &mut SendRequest<Empty<Bytes>>, latencies: &Latencies) -> hyper::Result<()> {
    sender.ready().await?;
    let asked = BootClock.now();
    let request = Request::get("/work").header("host", "localhost").body(Empty::new());
    let response = sender.send_request(request.expect("a path and a host are a request")).await?;
    let status = response.status();
    response.into_body().collect().await?;
    match status {
        StatusCode::OK => latencies.add(BootClock.now().since(asked)),
        _ => sleep(COME_BACK).await,
    }
    Ok(())
}

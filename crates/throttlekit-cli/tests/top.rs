//! `throttlekit top` in a terminal, over a server that runs.

use crate::common::Serving;
use crate::common::pty::Pty;
use throttlekit_proto::v1::CheckRequest;
use throttlekit_proto::v1::rate_limiter_client::RateLimiterClient;
use tonic::transport::Channel;

const POLICIES: &str = "
version: 1
policies:
  greeting: {rate: {limit: 2, per: 1d, algorithm: fixed_window}}
  portions: {fair: {limit: 100, per: 1d, weights: {acme: 3}}}
";

/// The screen is cleared, for whatever fits the new size.
const DRAWN_ANEW: &str = "\x1b[2J";

/// A server that has denied `mallory` and let pass `acme`.
fn asked() -> Serving {
    let serving = Serving::start(POLICIES, &["--node-id", "node-seven", "--trust-loopback"]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let channel = Channel::from_shared(format!("http://{}", serving.at("grpc"))).unwrap();
        let mut client = RateLimiterClient::new(channel.connect().await.unwrap());
        for (policy, key, cost) in
            [("greeting", "mallory", 1); 4].into_iter().chain([("portions", "acme", 30)])
        {
            let ask = CheckRequest { policy: policy.into(), key: key.into(), cost, ..Default::default() };
            client.check(ask).await.unwrap();
        }
    });
    serving
}

fn top(serving: &Serving) -> Pty {
    Pty::run(env!("CARGO_BIN_EXE_throttlekit"), &["top", "--target", serving.at("grpc")])
}

#[test]
fn it_shows_what_a_server_does_and_q_gives_the_terminal_back() {
    let serving = asked();
    let mut pty = top(&serving);
    for words in ["node-seven", "live", "greeting", "mallory", "acme", "×3", "memory", "responding"] {
        pty.wait_for(words);
    }
    pty.press("?");
    pty.wait_for("Help");
    pty.press("q");
    assert!(pty.ended_well());
    pty.assert_given_back();
}

#[test]
fn any_size_of_terminal_does() {
    let serving = asked();
    let mut pty = top(&serving);
    pty.wait_for("live");
    for (columns, rows) in [(80, 24), (1, 1), (300, 90), (20, 5), (200, 2), (128, 40)] {
        pty.resize(columns, rows);
        pty.wait_for(DRAWN_ANEW);
        if rows >= 24 {
            pty.wait_for("ThrottleKit");
        }
        assert!(pty.is_running(), "at {columns} by {rows}: {:?}", pty.shown());
    }
    pty.wait_for("greeting");
    pty.press("q");
    assert!(pty.ended_well());
    pty.assert_given_back();
}

#[test]
fn a_server_that_goes_away_is_shown_so_and_ctrl_c_ends_it() {
    let serving = asked();
    let mut pty = top(&serving);
    pty.wait_for("live");
    drop(serving);
    pty.wait_for("UNAVAILABLE");
    pty.press("\x03");
    assert!(pty.ended_well());
    pty.assert_given_back();
}

#[test]
fn whoever_stops_the_process_leaves_a_good_terminal_behind() {
    let serving = asked();
    let mut pty = top(&serving);
    pty.wait_for("live");
    pty.signal("TERM");
    assert!(pty.ended_well());
    pty.assert_given_back();
}

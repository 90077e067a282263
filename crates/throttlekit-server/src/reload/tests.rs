use std::time::Duration;

use tempfile::TempDir;

use super::*;
use crate::access::{AuthError, Secret};
use crate::engine::{Backend, EngineOptions};
use crate::policy::Endpoint;

const A: &str = "the first token of a";
const B: &str = "the first token of b";

/// A server's file and its tokens in a folder, and the engine that runs it.
struct Fixture {
    folder: TempDir,
    reloader: Arc<Reloader>,
    engine: Engine,
}

impl Fixture {
    /// Creates principals `a` and `b`, each with a token in the file of its name.
    fn listed() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, token) in [("a", A), ("b", B)] {
            std::fs::write(folder.path().join(name), token).unwrap();
        }
        let text = text(folder.path(), "");
        Self::over(folder, &text, Secrets::default())
    }

    fn over(folder: TempDir, text: &str, secrets: Secrets) -> Self {
        let path = folder.path().join("policies.yaml");
        std::fs::write(&path, text).unwrap();
        let loaded = Loaded::read(&path).unwrap();
        let reloader = Reloader::new(path, &loaded, secrets).unwrap();
        let engine = Engine::start(EngineOptions::over(Backend::memory()), loaded.file).unwrap();
        Self { folder, reloader, engine }
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join(name), text).unwrap();
    }

    fn remove(&self, name: &str) {
        std::fs::remove_file(self.folder.path().join(name)).unwrap();
    }

    async fn look(&self) -> Option<Result<Reloaded, ServerError>> {
        self.reloader.look(&self.engine).await
    }

    /// Writes a policy file, and checks it until it is applied or rejected.
    async fn load(&self, text: &str) -> Result<Reloaded, ServerError> {
        self.write("policies.yaml", text);
        assert!(self.look().await.is_none(), "it may be half written");
        self.look().await.unwrap()
    }

    fn shows(&self, token: &str) -> Result<String, AuthError> {
        let value = format!("Bearer {token}").parse().unwrap();
        let headers = http::HeaderMap::from_iter([(http::header::AUTHORIZATION, value)]);
        let found = self.reloader.access().load().identify(&headers, None);
        found.map(|caller| caller.principal().name().to_owned())
    }
}

fn text(folder: &Path, more: &str) -> String {
    let file = |name: &str| folder.join(name).display().to_string();
    let (a, b) = (file("a"), file("b"));
    format!(
        "version: 1
policies:
  p: {{rate: {{limit: 5, per: 1d}}}}
access:
  principals:
    a: {{token_file: '{a}', allow: [{{endpoints: [check]}}]}}
    b: {{token_file: '{b}', allow: [{{endpoints: [check]}}]}}
{more}"
    )
}

const fn wrong() -> Result<String, AuthError> {
    Err(AuthError::WrongToken)
}

async fn grace_is_over() {
    tokio::time::sleep(GRACE + Duration::from_millis(50)).await;
}

#[tokio::test]
async fn a_deleted_token_is_refused_after_its_grace_and_others_rotate_meanwhile() {
    let fixture = Fixture::listed();
    assert_eq!((fixture.shows(A), fixture.shows(B)), (Ok("a".into()), Ok("b".into())));
    fixture.remove("a");
    fixture.write("b", "the second token of b");
    assert!(fixture.look().await.is_none());
    assert_eq!(fixture.shows(A), Ok("a".into()), "the file may be about to be replaced");
    assert_eq!((fixture.shows(B), fixture.shows("the second token of b")), (wrong(), Ok("b".into())));
    grace_is_over().await;
    assert!(fixture.look().await.is_none());
    assert_eq!((fixture.shows(A), fixture.shows("the second token of b")), (wrong(), Ok("b".into())));

    let status = fixture.reloader.status();
    assert_eq!((status.access_failing, status.access_failures, status.rejected), (1, 1, 0));
    let error = status.access_error.clone().unwrap();
    assert!(error.contains("access.principals.a: token_file: ") && error.contains("No such file"), "{error}");
    let list = fixture.reloader.access().load_full();
    assert!(fixture.look().await.is_none());
    assert_eq!(fixture.reloader.status(), status, "reported once");
    assert!(Arc::ptr_eq(&list, &fixture.reloader.access().load_full()), "not built again for nothing");

    fixture.write("a", "the second token of a");
    assert!(fixture.look().await.is_none());
    assert_eq!((fixture.shows(A), fixture.shows("the second token of a")), (wrong(), Ok("a".into())));
    let status = fixture.reloader.status();
    assert_eq!((status.access_failing, status.access_failures), (0, 1));
    assert_eq!(status.access_error, None);
}

#[tokio::test]
async fn a_token_file_that_is_replaced_slowly_refuses_nobody() {
    let fixture = Fixture::listed();
    fixture.write("a", "");
    assert!(fixture.look().await.is_none());
    assert_eq!(fixture.shows(A), Ok("a".into()));
    fixture.write("a", A);
    grace_is_over().await;
    assert!(fixture.look().await.is_none());
    assert_eq!(fixture.shows(A), Ok("a".into()));
    assert_eq!(fixture.reloader.status().access_failures, 0);
}

/// The guarantee of docs/operate/security.md. A busy machine may delay a check, but not five in a row.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_default_interval_a_deleted_token_is_refused_within_two_seconds() {
    let fixture = Fixture::listed();
    fixture.reloader.watch(fixture.engine.clone(), Duration::from_secs(1));
    let mut took = Vec::new();
    for _ in 0..5 {
        fixture.remove("a");
        let start = BootClock.now();
        while fixture.shows(A).is_ok() {
            assert!(BootClock.now().since(start) < Duration::from_secs(60), "never refused");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        took.push(BootClock.now().since(start));
        if took.last() <= Some(&Duration::from_secs(2)) {
            return;
        }
        fixture.write("a", A);
        while fixture.shows(A).is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    panic!("{took:?}");
}

/// The guarantee of README.md, for a file that is written just after a check.
#[tokio::test(start_paused = true)]
async fn with_the_default_interval_a_new_file_is_in_force_within_two_seconds() {
    let fixture = Fixture::listed();
    fixture.reloader.watch(fixture.engine.clone(), Duration::from_secs(1));
    tokio::time::sleep(Duration::from_millis(1)).await;
    fixture.write("policies.yaml", &text(fixture.folder.path(), "").replace("  p:", "  q:"));
    let written = tokio::time::Instant::now();
    while !fixture.engine.file().policies.contains_key("q") {
        // The next check is a second away, the one after it only a grace more. The rest is for loading the file.
        assert!(written.elapsed() < Duration::from_millis(1_800), "not read again before the next turn");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_new_file_is_taken_up_though_one_principal_has_no_token_yet() {
    let fixture = Fixture::listed();
    let c = fixture.folder.path().join("c");
    let more = format!("    c: {{token_file: '{}', allow: [{{endpoints: [check]}}]}}\n", c.display());
    fixture.load(&text(fixture.folder.path(), &more)).await.unwrap();
    let status = fixture.reloader.status();
    assert_eq!((status.reloads, status.rejected, status.access_failing), (1, 0, 1));
    assert_eq!(fixture.shows(A), Ok("a".into()));
    fixture.write("c", "the first token of c");
    assert!(fixture.look().await.is_none());
    assert_eq!(fixture.shows("the first token of c"), Ok("c".into()));
    assert_eq!(fixture.reloader.status().access_failing, 0);
}

#[tokio::test]
async fn a_server_does_not_start_with_a_token_that_cannot_be_read() {
    let fixture = Fixture::listed();
    fixture.remove("b");
    let path = fixture.folder.path().join("policies.yaml");
    let refused = Reloader::new(path.clone(), &Loaded::read(&path).unwrap(), Secrets::default());
    assert!(refused.err().unwrap().to_string().contains("access.principals.b: token_file: "));
}

#[tokio::test]
async fn secrets_of_monitor_and_fleet_rotate_and_a_deleted_one_does_not_fall_back_to_loopback() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("monitor");
    std::fs::write(&path, A).unwrap();
    let monitor = Some(Secret::in_file(&path).unwrap());
    let secrets = Secrets { monitor, trust_loopback: true, ..Secrets::default() };
    let text = "version: 1\npolicies: {p: {rate: {limit: 5, per: 1d}}}\n";
    let fixture = Fixture::over(folder, text, secrets);
    let peer = crate::listen::Peer::at("127.0.0.1:9".parse().unwrap());
    let sees = |token: &str| {
        let headers = http::HeaderMap::from_iter([(
            http::HeaderName::from_static("x-monitor-secret"),
            token.parse().unwrap(),
        )]);
        let caller = fixture.reloader.access().load().identify(&headers, Some(&peer)).unwrap();
        caller.allows(Endpoint::Monitor, "p", b"")
    };
    assert!(sees(A) && !sees(B));
    fixture.write("monitor", B);
    assert!(fixture.look().await.is_none());
    assert!(!sees(A) && sees(B));
    fixture.remove("monitor");
    assert!(fixture.look().await.is_none());
    grace_is_over().await;
    assert!(fixture.look().await.is_none());
    assert!(!sees(A) && !sees(B) && !sees("x"));
    assert!(fixture.reloader.status().access_error.clone().unwrap().contains("the monitor secret: "));
}

/// Under a list that allows all, a new policy would be open until the new list is applied, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_list_is_in_force_no_later_than_new_policies() {
    let folder = tempfile::tempdir().unwrap();
    let with = |policy: &str, allows: &str| {
        format!(
            "version: 1\npolicies: {{{policy}: {{rate: {{limit: 5, per: 1d}}}}}}\n\
             access: {{anonymous: [{{endpoints: [check], policies: ['{allows}']}}]}}\n"
        )
    };
    let fixture = Fixture::over(folder, &with("p", "*"), Secrets::default());
    for turn in 0..50 {
        let (policy, allows) = if turn % 2 == 0 { ("q", "p") } else { ("p", "*") };
        let (engine, access) = (fixture.engine.clone(), fixture.reloader.access());
        let watching = tokio::task::spawn_blocking(move || {
            while !engine.file().policies.contains_key(policy) {
                std::hint::spin_loop();
            }
            let caller = access.load().identify(&http::HeaderMap::new(), None).unwrap();
            caller.allows(Endpoint::Check, "q", b"k")
        });
        fixture.load(&with(policy, allows)).await.unwrap();
        assert_eq!(watching.await.unwrap(), policy == "p", "turn {turn}");
    }
}

#[tokio::test]
async fn a_refused_file_leaves_the_list_as_it_was() {
    let fixture = Fixture::listed();
    let list = fixture.reloader.access().load_full();
    let bad = text(fixture.folder.path(), "").replace("p: {rate: {limit: 5, per: 1d}}", "p: {}");
    fixture.load(&bad).await.unwrap_err();
    assert!(Arc::ptr_eq(&list, &fixture.reloader.access().load_full()));
    assert_eq!(fixture.shows(A), Ok("a".into()));
}

#[tokio::test]
async fn a_file_that_is_no_file_is_refused_at_once_and_reported_once() {
    let fixture = Fixture::listed();
    let path = fixture.folder.path().join("policies.yaml");
    let good = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let within = tokio::time::timeout(Duration::from_secs(30), fixture.look());
    let error = within.await.expect("a pipe is not waited for").unwrap().unwrap_err().to_string();
    assert!(error.contains("not a regular file"), "{error}");
    assert!(fixture.look().await.is_none() && fixture.look().await.is_none());
    assert_eq!(fixture.reloader.status().rejected, 1);
    // Tokens change meanwhile.
    fixture.write("b", "the second token of b");
    assert!(fixture.look().await.is_none());
    assert_eq!(fixture.shows("the second token of b"), Ok("b".into()));
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, good).unwrap();
    assert!(fixture.look().await.is_none());
    assert_eq!(fixture.reloader.status().last_error, None, "the one in force is back");
    assert!(Loaded::read(Path::new("/dev/zero")).err().unwrap().to_string().contains("not a regular file"));
}

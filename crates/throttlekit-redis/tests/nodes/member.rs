//! The nodes, controlled by their parent: processes, each behind a proxy of its own.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::Plan;
use super::log::{self, Admission};
use crate::rig::{Proxy, Server, until};

const POST: &str = "THROTTLEKIT_FLEET_POST";
/// The maximum time in which a program of this size starts on a busy machine.
const START_MAX: Duration = Duration::from_secs(15);

/// The configuration of a node.
pub(crate) struct Post {
    pub(crate) number: usize,
    pub(crate) url: String,
    pub(crate) policy: String,
    pub(crate) log: PathBuf,
}

/// Returns this process's configuration, if it is a node.
pub(crate) fn post() -> Option<Post> {
    let told = std::env::var(POST).ok()?;
    let [number, url, policy, log] = told.split('\n').collect::<Vec<_>>()[..] else { return None };
    Some(Post { number: number.parse().ok()?, url: url.into(), policy: policy.into(), log: log.into() })
}

pub(crate) struct Fleet {
    test: &'static str,
    policy: String,
    pub(crate) members: Vec<Member>,
    /// Nodes that are leaving.
    leaving: Vec<Child>,
}

/// A node that was replaced.
#[must_use]
pub(crate) struct Replaced<'a> {
    old: Child,
    leaving: &'a mut Vec<Child>,
}

impl Replaced<'_> {
    /// Kills it with `kill -9`.
    pub(crate) fn kill(mut self) {
        let _ = (self.old.kill(), self.old.wait());
    }

    /// Closes its input; the node exits once it has returned its units.
    pub(crate) fn leave(mut self) {
        self.old.stdin = None;
        self.leaving.push(self.old);
    }
}

pub(crate) struct Member {
    child: Child,
    pub(crate) proxy: Proxy,
    log: PathBuf,
}

impl Fleet {
    /// Starts the nodes. Returns once every node sends requests.
    pub(crate) async fn start(plan: &Plan, server: &Server, policy: &str) -> Self {
        let mut fleet =
            Self { test: plan.test, policy: policy.to_owned(), members: Vec::new(), leaving: Vec::new() };
        for number in 0..plan.nodes.len() {
            let proxy = Proxy::before(server.port).await;
            let log = server.folder().join(format!("node-{number}"));
            let child = fleet.spawn(number, &proxy, &log);
            fleet.members.push(Member { child, proxy, log });
        }
        until("every node asks", START_MAX, async || fleet.members.iter().all(|member| member.log.exists()))
            .await;
        fleet
    }

    fn spawn(&self, number: usize, proxy: &Proxy, log: &std::path::Path) -> Child {
        let post = format!(
            "{number}
{}
{}
{}",
            proxy.url(),
            self.policy,
            log.display()
        );
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", self.test, "--nocapture"])
            .env(POST, post)
            // The other end of the pipe closes with this process, and the node exits with it.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// Starts another node in place of this one, which is to be ended.
    pub(crate) fn replace(&mut self, number: usize) -> Replaced<'_> {
        let child = self.spawn(number, &self.members[number].proxy, &self.members[number].log);
        let old = std::mem::replace(&mut self.members[number].child, child);
        Replaced { old, leaving: &mut self.leaving }
    }

    /// Stops a node (`STOP`), or continues it (`CONT`).
    pub(crate) fn signal(&self, number: usize, name: &str) {
        let pid = self.members[number].child.id();
        let done = Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status();
        assert!(done.unwrap().success());
    }

    pub(crate) fn admissions(&self) -> Vec<Admission> {
        self.members.iter().flat_map(|member| log::read(&member.log)).collect()
    }

    pub(crate) fn end(&mut self) {
        for child in self.members.iter_mut().map(|member| &mut member.child).chain(&mut self.leaving) {
            let _ = (child.kill(), child.wait());
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.end();
    }
}

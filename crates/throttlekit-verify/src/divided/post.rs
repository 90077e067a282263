//! The configuration of a process, passed through its environment.

use std::path::PathBuf;
use std::time::Duration;

use throttlekit::store::MembershipStore;

use super::{backend, node};

const POST: &str = "THROTTLEKIT_SLOTS_POST";

/// The job of one process.
#[derive(Clone, Debug)]
pub enum Post {
    /// Works, and counts its concurrent requests.
    Backend {
        /// The concurrency up to which it works at full speed; zero for any number.
        capacity: u32,
    },
    /// Admits work.
    Node(Order),
}

/// The configuration of a node.
#[derive(Clone, Debug)]
pub struct Order {
    /// The port of the backend.
    pub port: u16,
    /// The name of the shared ceiling.
    pub name: String,
    /// The path of its log.
    pub log: PathBuf,
    /// The shared ceiling.
    pub limit: Limit,
    /// True if each node has the same share.
    pub equal: bool,
    /// The lifetime of a grant.
    pub lives: Duration,
    /// The number it would have in flight if nothing were denied, in thousandths.
    pub demand_milli: u64,
    /// The minimum and the maximum duration of a request.
    pub work: [Duration; 2],
    /// The seeded bug, if any.
    pub bug: Option<Bug>,
}

/// A shared ceiling.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// A fixed number.
    Fixed(u32),
    /// Inferred, with this maximum.
    Inferred(u32),
}

throttlekit_conformance::bugs! {
    /// A bug of a node.
    pub enum Bug {
        ClockStands: "Its clock stands while it is stopped, and its work has no deadline.",
        TornReport: "What it reports to have in flight is not what it has.",
        WorkOutlives: "What it has in flight when its grant dies goes on.",
    }
}

/// Returns the job of this process, if it has one.
pub fn post() -> Option<Post> {
    let told = std::env::var(POST).ok()?;
    let words: Vec<&str> = told.split('\n').collect();
    match words[..] {
        ["backend", capacity] => Some(Post::Backend { capacity: capacity.parse().ok()? }),
        ["node", port, name, log, fixed, most, equal, lives, demand, least, longest, bug] => {
            let most = most.parse().ok()?;
            let ms = |word: &str| Some(Duration::from_millis(word.parse().ok()?));
            Some(Post::Node(Order {
                port: port.parse().ok()?,
                name: name.into(),
                log: log.into(),
                limit: if fixed == "fixed" { Limit::Fixed(most) } else { Limit::Inferred(most) },
                equal: equal == "true",
                lives: ms(lives)?,
                demand_milli: demand.parse().ok()?,
                work: [ms(least)?, ms(longest)?],
                bug: Bug::ALL.iter().copied().find(|known| known.name() == bug),
            }))
        }
        _ => None,
    }
}

impl Post {
    /// Returns the environment variable that [`post`] reads.
    pub(super) fn env(&self) -> (&'static str, String) {
        let told = match self {
            Self::Backend { capacity } => format!("backend\n{capacity}"),
            Self::Node(order) => order.words().join("\n"),
        };
        (POST, told)
    }
}

impl Order {
    fn words(&self) -> [String; 12] {
        let (fixed, most) = match self.limit {
            Limit::Fixed(most) => ("fixed", most),
            Limit::Inferred(most) => ("inferred", most),
        };
        let ms = |time: Duration| time.as_millis().to_string();
        let bug = self.bug.map_or("", Bug::name);
        [
            "node".into(),
            self.port.to_string(),
            self.name.clone(),
            self.log.display().to_string(),
            fixed.into(),
            most.to_string(),
            self.equal.to_string(),
            ms(self.lives),
            self.demand_milli.to_string(),
            ms(self.work[0]),
            ms(self.work[1]),
            bug.into(),
        ]
    }
}

/// Runs the job until the parent ends this process or closes its input.
pub fn serve<R: MembershipStore, F: Future<Output = R>>(post: &Post, store: impl FnOnce() -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        match post {
            Post::Backend { capacity } => backend::serve(*capacity).await,
            Post::Node(order) => node::serve(order, store().await).await,
        }
    });
}

/// Completes when the parent closes this process's input or exits.
pub(super) async fn input_ends() {
    let (told, heard) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        told.send(())
    });
    let _ = heard.await;
}

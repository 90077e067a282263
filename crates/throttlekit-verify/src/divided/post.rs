//! What a process of the crew is told, through its environment.

use std::path::PathBuf;
use std::time::Duration;

use throttlekit::store::MembershipStore;

use super::{backend, node};

const POST: &str = "THROTTLEKIT_SLOTS_POST";

/// What one process does.
#[derive(Clone, Debug)]
pub enum Post {
    /// Works, and counts on how much at a time.
    Backend {
        /// How many at a time it works on at full speed; zero for any number.
        capacity: u32,
    },
    /// Lets work in.
    Node(Order),
}

/// What a node is told.
#[derive(Clone, Debug)]
pub struct Order {
    /// Where the backend listens.
    pub port: u16,
    /// The name of the fleet.
    pub name: String,
    /// Where it writes down what it let in.
    pub log: PathBuf,
    /// Of how many at a time it is a part.
    pub limit: Limit,
    /// Whether each node has the same share.
    pub equal: bool,
    /// How long a grant lives.
    pub lives: Duration,
    /// How many it would have in flight if nobody were turned away, in thousandths.
    pub demand_milli: u64,
    /// How long a piece of work takes, at the least and at the most.
    pub work: [Duration; 2],
    /// What is wrong with it.
    pub bug: Option<Bug>,
}

/// The ceiling of a fleet.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// So many.
    Fixed(u32),
    /// Inferred, at most so many.
    Inferred(u32),
}

throttlekit_conformance::bugs! {
    /// What may be wrong with a node.
    pub enum Bug {
        ClockStands: "Its clock stands while it is stopped, and its work has no deadline.",
        TornReport: "What it reports to have in flight is not what it has.",
        WorkOutlives: "What it has in flight when its grant dies goes on.",
    }
}

/// The post of this process, if it has one.
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
    /// The same as [`post`] reads it.
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

/// Does what the post says, until whoever started this process ends it or its own input.
pub fn serve<R: MembershipStore, F: Future<Output = R>>(post: &Post, store: impl FnOnce() -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        match post {
            Post::Backend { capacity } => backend::serve(*capacity).await,
            Post::Node(order) => node::serve(order, store().await).await,
        }
    });
}

/// Ends when whoever started this process lets go of its input, or ends.
pub(super) async fn input_ends() {
    let (told, heard) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        told.send(())
    });
    let _ = heard.await;
}

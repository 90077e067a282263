//! The processes, controlled by their parent.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use throttlekit::clock::{BootClock, Clock};
use throttlekit::internals::Mutex;

use super::judge::Told;
use super::log;
use super::post::{Order, Post};
use throttlekit_conformance::Dice;

/// A backend and its nodes. All are ended with it.
pub struct Crew {
    command: Box<dyn Fn() -> Command>,
    backend: Child,
    _backend_input: Option<ChildStdin>,
    pub(super) told: Arc<Mutex<Vec<Told>>>,
    port: u16,
    folder: PathBuf,
    orders: Vec<Order>,
    nodes: Vec<Child>,
    leaving: Vec<Child>,
    pub(super) logs: Vec<PathBuf>,
    /// Faults so far, by name.
    pub faults: std::collections::BTreeMap<&'static str, u64>,
}

impl Crew {
    /// Starts a backend. `command` starts this program again so that it reads its [`post`](super::post).
    pub fn start(command: impl Fn() -> Command + 'static, folder: PathBuf, capacity: u32) -> Self {
        let (key, value) = Post::Backend { capacity }.env();
        let mut backend = command()
            .env(key, value)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program starts again");
        let mut lines = BufReader::new(backend.stdout.take().expect("it is piped")).lines();
        let port = loop {
            let line = lines.next().expect("the backend tells its port").expect("in words");
            if let Some((_, port)) = line.split_once("port ") {
                break port.trim().parse().expect("a number");
            }
        };
        let told = Arc::<Mutex<Vec<Told>>>::default();
        let hears = told.clone();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Some(told) = Told::from(&line) {
                    hears.lock().push(told);
                }
            }
        });
        Self {
            command: Box::new(command),
            _backend_input: backend.stdin.take(),
            backend,
            told,
            port,
            folder,
            orders: Vec::new(),
            nodes: Vec::new(),
            leaving: Vec::new(),
            logs: Vec::new(),
            faults: Default::default(),
        }
    }

    /// Adds a node.
    pub fn join(&mut self, order: Order) {
        let node = self.spawn(&order, self.nodes.len());
        self.orders.push(order);
        self.nodes.push(node);
    }

    fn spawn(&mut self, order: &Order, place: usize) -> Child {
        let log = self.folder.join(format!("node-{place}-{}", self.logs.len()));
        self.logs.push(log.clone());
        let (key, value) = Post::Node(Order { port: self.port, log, ..order.clone() }).env();
        (self.command)()
            .env(key, value)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("this program starts again")
    }

    /// Makes all nodes leave, and waits until they have.
    pub fn dismiss(&mut self) {
        self.leaving.append(&mut self.nodes);
        self.orders.clear();
        let until = BootClock.now() + Duration::from_secs(5);
        for child in &mut self.leaving {
            child.stdin = None;
            while BootClock.now() < until && matches!(child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(5));
            }
            let _ = (child.kill(), child.wait());
        }
        self.leaving.clear();
    }

    /// Stops, kills and replaces random nodes for this long.
    pub fn inject_faults(&mut self, seed: u64, lasts: Duration) {
        let (mut dice, until) = (Dice::new(seed), BootClock.now() + lasts);
        while BootClock.now() < until {
            let (place, lives) = (dice.below(self.nodes.len() as u64) as usize, self.orders[0].lives);
            match dice.below(4) {
                0 => self.kill(place),
                1 => self.replace(place),
                _ => self.stop(place, lives * dice.between(11, 25) as u32 / 10),
            }
            std::thread::sleep(lives * dice.between(2, 12) as u32 / 10);
        }
    }

    /// Stops a node with `SIGSTOP` for this long, then continues it.
    pub fn stop(&mut self, place: usize, lasts: Duration) {
        self.signal(place, "STOP");
        std::thread::sleep(lasts);
        self.signal(place, "CONT");
        *self.faults.entry("stop").or_default() += 1;
    }

    /// Kills a node with `kill -9` and starts a replacement.
    pub fn kill(&mut self, place: usize) {
        let order = self.orders[place].clone();
        let node = self.spawn(&order, place);
        let mut old = std::mem::replace(&mut self.nodes[place], node);
        let _ = (old.kill(), old.wait());
        *self.faults.entry("kill").or_default() += 1;
    }

    /// Lets a node leave gracefully and starts a replacement.
    pub fn replace(&mut self, place: usize) {
        let order = self.orders[place].clone();
        let node = self.spawn(&order, place);
        let mut old = std::mem::replace(&mut self.nodes[place], node);
        old.stdin = None;
        self.leaving.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        self.leaving.push(old);
        *self.faults.entry("leave").or_default() += 1;
    }

    fn signal(&self, place: usize, name: &str) {
        let pid = self.nodes[place].id();
        let _ = Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status();
    }

    pub(super) fn read_logs(&self) -> Vec<(Vec<[u64; 2]>, Vec<log::Look>)> {
        self.logs.iter().map(|path| log::read(path)).collect()
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for child in self.nodes.iter_mut().chain(&mut self.leaving).chain([&mut self.backend]) {
            let _ = (child.kill(), child.wait());
        }
    }
}

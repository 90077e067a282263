//! The backend: works for the requested time, and counts its concurrent requests.

use std::sync::Arc;
use std::time::Duration;

use throttlekit::clock::{BootClock, Clock};
use throttlekit::internals::Mutex;
use throttlekit::rate::Timestamp;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::sleep;

/// The reporting interval.
const TELL_EVERY: Duration = Duration::from_millis(50);

/// Exact counts, updated at each start and end.
#[derive(Debug)]
struct Floor {
    capacity: u32,
    count: u32,
    /// The maximum since the last report.
    max: u32,
    /// Slots in use, multiplied by time.
    busy_nanos: u128,
    changed: Timestamp,
    served: u64,
    refused: u64,
}

impl Floor {
    fn begin(&mut self, now: Timestamp) {
        self.pass(now);
        self.count += 1;
        self.max = self.max.max(self.count);
    }

    fn end(&mut self, now: Timestamp) {
        self.pass(now);
        self.count -= 1;
        self.served += 1;
    }

    fn pass(&mut self, now: Timestamp) {
        self.busy_nanos += u128::from(self.count) * now.since(self.changed).as_nanos();
        self.changed = now;
    }

    /// Returns the duration of work at the current concurrency.
    fn takes(&self, work: Duration) -> Duration {
        if self.capacity == 0 || self.count <= self.capacity {
            return work;
        }
        work * self.count / self.capacity
    }
}

type Shared = Arc<Mutex<Floor>>;

fn on<T>(floor: &Shared, act: impl FnOnce(&mut Floor, Timestamp) -> T) -> T {
    let mut floor = floor.lock();
    // Read under the lock, so that times only move forward.
    act(&mut floor, BootClock.now())
}

pub(super) async fn serve(capacity: u32) {
    let changed = BootClock.now();
    let floor = Floor { capacity, count: 0, max: 0, busy_nanos: 0, changed, served: 0, refused: 0 };
    let floor = Arc::new(Mutex::new(floor));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    println!("port {}", listener.local_addr().expect("an address").port());
    tokio::spawn(accept(listener, floor.clone()));
    tokio::spawn(async move {
        loop {
            sleep(TELL_EVERY).await;
            tell(&floor);
        }
    });
    super::post::input_ends().await;
}

fn tell(floor: &Shared) {
    on(floor, |floor, now| {
        floor.pass(now);
        let Floor { count, max, busy_nanos, served, refused, .. } = *floor;
        println!("backend {} {max} {busy_nanos} {served} {refused}", now.as_nanos());
        floor.max = count;
    });
}

async fn accept(listener: TcpListener, floor: Shared) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(converse(stream, floor.clone()));
    }
}

/// Handles lines with a number, microseconds of work, and the deadline. Responds with the number, and `true`
/// if the work was done.
async fn converse(stream: TcpStream, floor: Shared) {
    let _ = stream.set_nodelay(true);
    let (reader, mut writer) = stream.into_split();
    let (answers, mut to_send) = mpsc::unbounded_channel::<String>();
    tokio::spawn(async move {
        while let Some(answer) = to_send.recv().await {
            if writer.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
    });
    let mut lines = BufReader::new(reader).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let mut numbers = line.split(' ').map(|word| word.parse::<u64>().unwrap_or(0));
        let [id, micros, dies] = [(); 3].map(|()| numbers.next().unwrap_or(0));
        let (work, dies) = (Duration::from_micros(micros), Timestamp::from_nanos(dies));
        let takes = on(&floor, |floor, now| {
            if now >= dies {
                floor.refused += 1;
                return None;
            }
            floor.begin(now);
            // Work that misses the deadline is not done.
            Some(floor.takes(work).min(dies.since(now)))
        });
        let Some(takes) = takes else {
            let _ = answers.send(format!("{id} 0\n"));
            continue;
        };
        let (floor, answers) = (floor.clone(), answers.clone());
        tokio::spawn(async move {
            sleep(takes).await;
            on(&floor, Floor::end);
            let _ = answers.send(format!("{id} 1\n"));
        });
    }
}

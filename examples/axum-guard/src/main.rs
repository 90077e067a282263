//! A service that finds out by itself how many requests its backend takes at a time.
//!
//! ```sh
//! cargo run --release -p axum-guard              # twelve seconds, then target/guard.csv
//! cargo run --release -p axum-guard -- my.csv
//! ```
//!
//! The backend works on twenty requests at a time and lets the others queue up; then on ten; then on twenty again,
//! each of which takes twice as long. Sixty clients ask without pause. Nobody tells the guard any of this.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;
use std::{env, fs};

use axum_guard::{Act, csv, played, table};

const ACT: Duration = Duration::from_secs(4);
const MS: u64 = 50;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let file = env::args().nth(1).map_or_else(|| PathBuf::from("target/guard.csv"), PathBuf::from);
    let acts = [(20, MS), (10, MS), (20, 2 * MS)];
    let acts = acts.map(|(at_a_time, ms)| Act { lasts: ACT, at_a_time, work: Duration::from_millis(ms) });
    let moments = played(&acts, 60).await?;
    print!("{}", table(&acts, &moments));
    fs::write(&file, csv(&acts, &moments))?;
    println!("every moment is in {}", file.display());
    Ok(())
}

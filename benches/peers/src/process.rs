//! Processes: start, wait until they listen, processor time, memory, end.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

const START_MAX: Duration = Duration::from_secs(30);
const START_POLL: Duration = Duration::from_millis(20);
/// Linux reports processor time to programs in hundredths of a second, whatever the kernel's own tick is.
const TICK_US: u64 = 10_000;

/// A running server. Dropping it kills the process.
pub struct Process(Child);

impl Process {
    /// Starts a program and returns when it listens on all addresses.
    pub fn start(mut command: Command, addresses: &[SocketAddr]) -> Result<Self> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let mut process = Self(child.with_context(|| format!("cannot start {command:?}"))?);
        let begun = Instant::now();
        for address in addresses {
            while TcpStream::connect(address).is_err() {
                let ended = process.0.try_wait()?;
                ensure!(ended.is_none(), "{command:?} ended at its start: {ended:?}");
                ensure!(begun.elapsed() < START_MAX, "{command:?} does not listen on {address}");
                sleep(START_POLL);
            }
        }
        Ok(process)
    }

    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Returns the processor time of all threads so far, in microseconds.
    pub fn cpu_us(&self) -> Result<u64> {
        let stat = self.read("stat")?;
        // The name in parentheses may contain spaces. User and system time are fields 14 and 15, the state is field 3.
        let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ').skip(11).take(2);
        let ticks = fields.map(str::parse::<u64>).sum::<Result<u64, _>>();
        Ok(ticks.with_context(|| format!("no processor time in {stat:?}"))? * TICK_US)
    }

    /// Returns the resident memory, in MiB.
    pub fn resident_mib(&self) -> Result<f64> {
        let status = self.read("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
        Ok(kib.context("no VmRSS in /proc/PID/status")? / 1024.0)
    }

    fn read(&self, file: &str) -> Result<String> {
        let path = format!("/proc/{}/{file}", self.id());
        fs::read_to_string(&path).with_context(|| format!("the server ended: no {path}"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns a loopback address that was free a moment ago.
pub fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// Runs a program to its end and returns its standard output.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Returns the processor's name, its cores and the load average.
pub fn machine() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{}, {cores} cores, load {}", model.trim_start_matches(['\t', ' ', ':']), load_average())
}

/// Returns the load average of the last minute.
pub fn load_average() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').next().unwrap_or_default().to_owned()
}

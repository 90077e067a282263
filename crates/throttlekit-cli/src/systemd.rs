//! Protocols between systemd and a service: readiness messages (`sd_notify`), the watchdog, and sockets that systemd
//! has opened (socket activation).
//!
//! Without `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `LISTEN_FDS` in the environment, nothing here has an effect.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::net::TcpListener;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use anyhow::{Context, Result};
use listenfd::ListenFd;
use rustix::time::{ClockId, clock_gettime};

/// Time limit for one message. A manager that reads none for this long has a problem of its own.
const SEND_MAX: Duration = Duration::from_secs(1);
/// Longest watchdog interval that is used as it is.
const WATCHDOG_MAX: Duration = Duration::from_secs(3600);

/// The service manager, if there is one that expects messages.
#[derive(Debug, Default)]
pub(crate) struct Manager {
    notify: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl Manager {
    /// Reads where to send messages from the environment. Messages that cannot be sent are not an error: the manager
    /// applies its own timeout.
    pub(crate) fn from_env() -> Self {
        let notify = env::var_os("NOTIFY_SOCKET").and_then(|path| match connect(&path) {
            Ok(socket) => Some(socket),
            Err(error) => {
                tracing::warn!(socket = ?path, %error, "NOTIFY_SOCKET unusable");
                None
            }
        });
        let text = |name| env::var(name).ok();
        let watchdog = watchdog(text("WATCHDOG_USEC"), text("WATCHDOG_PID"), std::process::id());
        Self { notify, watchdog }
    }

    /// Reports that the server listens, or that a reload is complete.
    pub(crate) fn ready(&self) {
        self.send("READY=1\nSTATUS=Serving");
    }

    /// Reports that files are being reloaded; [`ready`](Self::ready) ends it. The time is what `Type=notify-reload`
    /// requires.
    pub(crate) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let micros = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={micros}\nSTATUS=Reloading"));
    }

    /// Reports that the server has begun to stop.
    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=Draining");
    }

    /// Sends keep-alive messages twice per watchdog interval. Completes at once without a watchdog. A runtime that no
    /// longer runs tasks sends none, and systemd restarts the server.
    pub(crate) async fn keep_alive(&self) {
        let Some(interval) = self.watchdog else { return };
        let mut every = tokio::time::interval(interval / 2);
        loop {
            every.tick().await;
            self.send("WATCHDOG=1");
        }
    }

    fn send(&self, message: &str) {
        let Some((socket, address)) = &self.notify else { return };
        if let Err(error) = socket.send_to_addr(message.as_bytes(), address) {
            tracing::warn!(%error, message, "systemd notification not sent");
        }
    }
}

fn connect(path: &OsStr) -> io::Result<(UnixDatagram, SocketAddr)> {
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(SEND_MAX))?;
    Ok((socket, address(path)?))
}

/// Parses `NOTIFY_SOCKET`: a path, or `@` and an abstract name.
fn address(path: &OsStr) -> io::Result<SocketAddr> {
    #[cfg(target_os = "linux")]
    if let Some(name) = path.as_encoded_bytes().strip_prefix(b"@") {
        use std::os::linux::net::SocketAddrExt;
        return SocketAddr::from_abstract_name(name);
    }
    if !path.as_encoded_bytes().starts_with(b"/") {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "expected a path or an abstract name that begins with @",
        ));
    }
    SocketAddr::from_pathname(path)
}

/// Parses the watchdog interval. It counts only for the process that it names, or for any if it names none.
fn watchdog(interval: Option<String>, process: Option<String>, own: u32) -> Option<Duration> {
    if process.is_some_and(|process| process.parse() != Ok(own)) {
        return None;
    }
    let interval = Duration::from_micros(interval?.parse().ok()?);
    (!interval.is_zero()).then_some(interval.min(WATCHDOG_MAX))
}

/// Takes the sockets that systemd has passed to this process. Removes their variables from the environment, which is
/// safe only while the process has one thread.
pub(crate) fn sockets() -> Result<Vec<TcpListener>> {
    let mut passed = ListenFd::from_env();
    let mut sockets = Vec::new();
    for index in 0..passed.len() {
        let socket = passed.take_tcp_listener(index).and_then(|socket| socket.ok_or_else(missing));
        sockets
            .push(socket.with_context(|| format!("socket {index} of LISTEN_FDS: expected a TCP listener"))?);
    }
    Ok(sockets)
}

fn missing() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "no such socket")
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// A socket that receives messages, and a manager that sends to it.
    fn listening() -> (TempDir, UnixDatagram, Manager) {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("notify");
        let inbox = UnixDatagram::bind(&path).unwrap();
        inbox.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let notify = Some(connect(path.as_os_str()).unwrap());
        (folder, inbox, Manager { notify, watchdog: Some(Duration::from_millis(2)) })
    }

    fn received(inbox: &UnixDatagram) -> String {
        let mut bytes = [0; 256];
        let length = inbox.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    #[test]
    fn each_state_is_one_message() {
        let (_folder, inbox, manager) = listening();
        manager.ready();
        assert_eq!(received(&inbox), "READY=1\nSTATUS=Serving");
        manager.stopping();
        assert_eq!(received(&inbox), "STOPPING=1\nSTATUS=Draining");
    }

    #[test]
    fn a_reload_has_a_monotonic_time() {
        let (_folder, inbox, manager) = listening();
        manager.reloading();
        let first = received(&inbox);
        let time = |message: &str| -> i64 {
            let (_, rest) = message.split_once("RELOADING=1\nMONOTONIC_USEC=").unwrap();
            rest.split_once('\n').unwrap().0.parse().unwrap()
        };
        manager.reloading();
        let second = received(&inbox);
        assert!(0 < time(&first) && time(&first) <= time(&second), "{first:?} {second:?}");
    }

    #[tokio::test]
    async fn the_watchdog_is_kept_alive() {
        let (_folder, inbox, manager) = listening();
        let alive = tokio::spawn(async move { manager.keep_alive().await });
        let messages = tokio::task::spawn_blocking(move || [received(&inbox), received(&inbox)]);
        assert_eq!(messages.await.unwrap(), ["WATCHDOG=1", "WATCHDOG=1"]);
        alive.abort();
    }

    #[tokio::test]
    async fn without_a_manager_nothing_is_sent() {
        let manager = Manager::default();
        manager.ready();
        manager.reloading();
        manager.stopping();
        manager.keep_alive().await;
    }

    #[test]
    fn a_watchdog_of_another_process_is_ignored() {
        let parsed = |interval: &str, process: Option<&str>| {
            watchdog(Some(interval.into()), process.map(Into::into), 7).map(|interval| interval.as_millis())
        };
        assert_eq!(parsed("30000", None), Some(30));
        assert_eq!(parsed("30000", Some("7")), Some(30));
        assert_eq!(parsed("30000", Some("8")), None);
        assert_eq!(parsed("0", None), None);
        assert_eq!(parsed("often", None), None);
        assert_eq!(parsed("18446744073709551615", None), Some(3_600_000));
        assert_eq!(watchdog(None, None, 7), None);
    }

    #[test]
    fn relative_and_vsock_addresses_are_rejected() {
        for bad in ["notify", "vsock:2:9999", ""] {
            assert!(address(OsStr::new(bad)).is_err(), "{bad}");
        }
        assert!(address(OsStr::new("/run/systemd/notify")).is_ok());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_leading_at_is_an_abstract_name() {
        use std::os::linux::net::SocketAddrExt;
        let address = address(OsStr::new("@throttlekit/notify")).unwrap();
        assert_eq!(address.as_abstract_name(), Some(&b"throttlekit/notify"[..]));
    }
}

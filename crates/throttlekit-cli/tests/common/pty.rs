//! A terminal of its own for a command, with nobody before it.
#![allow(dead_code, reason = "unit tests and this program each use a part")]

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

/// What a terminal is told when a command takes the whole of it, and gives it back.
const LEAVES_SCREEN: &str = "\x1b[?1049l";
const SHOWS_CURSOR: &str = "\x1b[?25h";
const HIDES_CURSOR: &str = "\x1b[?25l";
/// How often it is looked, 20 ms apart, until something has to be there.
const LOOKS_MAX: u32 = 1_500;

pub(crate) struct Pty {
    hand: File,
    user: OwnedFd,
    before: Termios,
    child: Child,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl Pty {
    /// Runs a command in a terminal of 128 by 40, as the one who controls it.
    pub(crate) fn run(program: &str, args: &[&str]) -> Self {
        let hand = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&hand).unwrap();
        unlockpt(&hand).unwrap();
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let user = ioctl_tiocgptpeer(&hand, flags).unwrap();
        tcsetwinsize(&hand, size(128, 40)).unwrap();
        let end = || Stdio::from(user.try_clone().unwrap());
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(program).args(args).env("TERM", "xterm-256color");
        let before = tcgetattr(&user).unwrap();
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        let hand = File::from(hand);
        let seen = Arc::<Mutex<Vec<u8>>>::default();
        follow(hand.try_clone().unwrap(), seen.clone());
        Self { hand, user, before, child, seen }
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.hand.write_all(keys.as_bytes()).unwrap();
    }

    /// Another size. What was shown before is forgotten here.
    pub(crate) fn resize(&mut self, columns: u16, rows: u16) {
        self.seen.lock().unwrap().clear();
        tcsetwinsize(&self.hand, size(columns, rows)).unwrap();
    }

    pub(crate) fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    /// All that it was told to show, escapes included.
    pub(crate) fn shown(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().unwrap()).into_owned()
    }

    pub(crate) fn wait_for(&self, words: &str) {
        self.until(&format!("`{words}` is shown"), || self.shown().contains(words));
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for its end.
    pub(crate) fn ended_well(&mut self) -> bool {
        for _ in 0..LOOKS_MAX {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.success();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("it does not end: {:?}", self.shown());
    }

    /// The screen from before, a cursor, and keys that mean what they meant.
    pub(crate) fn assert_given_back(&self) {
        self.wait_for(LEAVES_SCREEN);
        self.until("the cursor is shown", || {
            let shown = self.shown();
            shown.rfind(SHOWS_CURSOR) > shown.rfind(HIDES_CURSOR)
        });
        let now = tcgetattr(&self.user).unwrap();
        assert_eq!(now.local_modes, self.before.local_modes);
        assert_eq!(now.input_modes, self.before.input_modes);
        assert_eq!(now.output_modes, self.before.output_modes);
    }

    fn until(&self, what: &str, is: impl Fn() -> bool) {
        for _ in 0..LOOKS_MAX {
            if is() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("{what}: not in time, but {:?}", self.shown());
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads until nobody holds the other end.
fn follow(mut hand: File, seen: Arc<Mutex<Vec<u8>>>) {
    std::thread::spawn(move || {
        let mut bytes = [0; 4_096];
        while let Ok(read @ 1..) = hand.read(&mut bytes) {
            seen.lock().unwrap().extend_from_slice(&bytes[..read]);
        }
    });
}

fn size(columns: u16, rows: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

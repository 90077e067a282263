//! PgBouncer in front of a server, a connection per transaction. Failing to get it panics with the reason.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::Duration;

use super::server::{Server, command, run};

const PROGRAM: &str = "pgbouncer";
const PATIENCE: Duration = Duration::from_millis(20);
const PATIENCE_POLLS: u32 = 1_000;

/// A pooler with its own directory. Stopped and removed on drop.
pub struct Pooler {
    folder: PathBuf,
    port: u16,
    child: Child,
}

impl Pooler {
    /// Starts one in front of this server.
    pub fn start(server: &Server) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = PathBuf::from(run("mktemp", &["-d", "-p", "/tmp", "throttlekit-pooler-XXXXXX"]).trim());
        let file = folder.join("pgbouncer.ini").display().to_string();
        write(&file, &text(&folder, port, server));
        let mut pooler = command(PROGRAM, &["-q", &file]);
        pooler.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = pooler.spawn().expect("pgbouncer starts; `cargo xtask services up` installs it");
        let pooler = Self { folder, port, child };
        pooler.wait();
        pooler
    }

    /// Returns its address.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Sends connections to another server from now on.
    pub fn point_at(&self, server: &Server) {
        let file = self.folder.join("pgbouncer.ini").display().to_string();
        write(&file, &text(&self.folder, self.port, server));
        run("sh", &["-c", "kill -HUP \"$(cat \"$1\")\"", "sh", &self.pid_file()]);
    }

    fn pid_file(&self) -> String {
        self.folder.join("pid").display().to_string()
    }

    fn wait(&self) {
        for _ in 0..PATIENCE_POLLS {
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return;
            }
            sleep(PATIENCE);
        }
        panic!("pgbouncer does not start; see {}", self.folder.display());
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        // It ignores SIGQUIT if a shell has started this process in the background.
        let stop = "kill -KILL \"$(cat \"$1\")\"";
        let _ = command("sh", &["-c", stop, "sh", &self.pid_file()]).output();
        let _ = self.child.wait();
        let _ = command("rm", &["-rf", &self.folder.display().to_string()]).output();
    }
}

fn write(file: &str, text: &str) {
    run("sh", &["-c", "printf '%s' \"$1\" > \"$2\"", "sh", text, file]);
}

/// Connections that fail are tried again at once: the server is back within a second or two.
fn text(folder: &std::path::Path, port: u16, server: &Server) -> String {
    let folder = folder.display();
    format!(
        "[databases]\n* = host=127.0.0.1 port={} user=postgres\n\
         [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
         logfile = {folder}/log\npidfile = {folder}/pid\nauth_type = any\npool_mode = transaction\n\
         server_login_retry = 0.1\nignore_startup_parameters = extra_float_digits\n",
        server.port()
    )
}

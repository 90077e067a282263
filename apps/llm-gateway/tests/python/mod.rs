//! Scenes that the pinned Python client plays against the gateway.

use std::path::Path;

use throttlekit_verify::python::{interpreter, limited, run};

use crate::common::Stand;

const CLIENT: &str = "openai==3.49.0";

/// Plays one scene of the script against the gateway. It fails with what Python says.
pub(crate) fn play(scene: &str, stand: &Stand) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/scenes.py");
    let mut command = limited(&interpreter(CLIENT));
    command.arg(script).arg(scene);
    command.env("GATEWAY", &stand.gateway.url).env("ADMIN", &stand.gateway.admin).env("MODEL", &stand.model);
    command.env("METER", stand.meter.label());
    command.env("RPM", stand.limits.rpm.to_string()).env("TPM", stand.limits.tpm.to_string());
    assert_eq!(run(command).trim(), format!("{scene}: as it should be"));
}

//! `throttlekit schema`.

use throttlekit_server::policy;

pub(crate) fn run() -> anyhow::Result<()> {
    println!("{}", serde_json::to_string_pretty(&policy::schema())?);
    Ok(())
}

//! The format of policy files, for editors and other tools.

use super::model::PolicyFile;

/// The JSON Schema of a policy file, with what each key means.
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(PolicyFile).to_value()
}

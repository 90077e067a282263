//! The format of policy files, for editors and other tools.

use super::model::PolicyFile;

/// Returns the JSON Schema of a policy file, with a description of each key.
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(PolicyFile).to_value()
}

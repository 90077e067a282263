//! A request, as far as it is metered.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::Api;
use crate::fields::Fields;

/// The parts of a request that metering needs.
#[derive(Clone, Debug)]
pub struct Request {
    /// The API that it uses.
    pub api: &'static Api,
    /// The model, which selects the tokenizer.
    pub model: String,
    /// The prompt fields that it has, by name.
    pub prompt: Vec<(&'static str, Value)>,
    /// The output limits that it has, by name; the first one applies.
    pub limits: Vec<(&'static str, u64)>,
    /// Number of completions.
    pub choices: u64,
    /// If `true`, the response is a stream.
    pub streams: bool,
    /// If `true`, the caller wants the usage in a stream that has it only on request.
    pub wants_usage: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StreamOptions {
    include_usage: bool,
}

impl Request {
    /// Reads a request. Fails with a text for the caller.
    pub fn read(api: &'static Api, fields: &Fields) -> Result<Self, String> {
        let model = field(fields, "model")?.ok_or("missing field `model`")?;
        let options: StreamOptions = field(fields, "stream_options")?.unwrap_or_default();
        Ok(Self {
            api,
            model,
            prompt: prompt(api, fields)?,
            limits: present(fields, api.limit.names)?,
            choices: field::<u64>(fields, "n")?.unwrap_or(1).max(1),
            streams: field(fields, "stream")?.unwrap_or(false) && api.stream.is_some(),
            wants_usage: options.include_usage,
        })
    }

    /// Reads a request from its body.
    pub fn parse(api: &'static Api, body: &[u8]) -> Result<Self, String> {
        let fields: Fields = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        Self::read(api, &fields)
    }

    /// Returns the output limit for each completion, if there is one.
    pub fn limit(&self) -> Option<u64> {
        self.limits.first().map(|&(_, limit)| limit)
    }
}

fn prompt(api: &Api, fields: &Fields) -> Result<Vec<(&'static str, Value)>, String> {
    let required = api.prompt[0];
    if api.takes_messages {
        field::<Vec<Map<String, Value>>>(fields, required)?
            .ok_or_else(|| format!("missing field `{required}`"))?;
    }
    let prompt: Vec<(&str, Value)> = present(fields, api.prompt)?;
    match prompt.first() {
        Some((name, Value::String(_) | Value::Array(_))) if *name == required => Ok(prompt),
        Some((name, _)) if *name == required => Err(format!("{required}: expected a string or an array")),
        _ => Err(format!("missing field `{required}`")),
    }
}

fn present<T: DeserializeOwned>(
    fields: &Fields,
    names: &'static [&'static str],
) -> Result<Vec<(&'static str, T)>, String> {
    let present = names.iter().filter_map(|&name| match field(fields, name) {
        Ok(value) => value.map(|value| Ok((name, value))),
        Err(error) => Some(Err(error)),
    });
    present.collect()
}

/// Reads a field. `null` is none.
fn field<T: DeserializeOwned>(fields: &Fields, name: &str) -> Result<Option<T>, String> {
    let text = fields.get(name).unwrap_or("null");
    serde_json::from_str(text).map_err(|error| format!("{name}: {error}"))
}

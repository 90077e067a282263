//! A request as it is metered and sent on.

use crate::api::ChatRequest;
use crate::fields::Fields;
use crate::gate::Asked;
use crate::refusal::Refusal;
use crate::tenants::Bound;
use crate::tokens::Counter;
use serde_json::{Map, Value};

/// What is asked of the model.
pub(super) struct Call {
    pub(super) request: ChatRequest,
    pub(super) counter: Counter,
    pub(super) asked: Asked,
    fields: Fields,
}

impl Call {
    pub(super) fn read(body: &[u8], max_tokens_default: u64) -> Result<Self, Refusal> {
        let fields: Fields = serde_json::from_slice(body)?;
        let request: ChatRequest = serde_json::from_slice(body)?;
        let counter = Counter::of(&request.model);
        let most = request.max_each().unwrap_or(max_tokens_default).saturating_mul(request.choices());
        let asked = Asked { prompt: counter.prompt(&request), most };
        Ok(Self { request, counter, asked, fields })
    }

    /// What came, but for what metering needs: the model's own count at the end of a stream, and a limit to an answer that
    /// does not stream, which nobody can cut. Who gave no limit gets one where the configuration says how to name it.
    pub(super) fn sent_on(
        &mut self,
        may_use: u64,
        bound_by: Option<Bound>,
        max_tokens_default: u64,
    ) -> Result<String, Refusal> {
        let Self { request, fields, .. } = self;
        let most_each = if request.streams() { u64::MAX } else { (may_use / request.choices()).max(1) };
        let given = [
            (Bound::MaxTokens, request.max_tokens),
            (Bound::MaxCompletionTokens, request.max_completion_tokens),
        ];
        for (bound, wanted) in given {
            if wanted.is_some_and(|wanted| wanted > most_each) {
                fields.set(bound.label(), &most_each)?;
            }
        }
        if let (None, Some(bound)) = (request.max_each(), bound_by) {
            fields.set(bound.label(), &max_tokens_default.min(most_each))?;
        }
        if request.streams() {
            let options = fields.get("stream_options").and_then(|options| serde_json::from_str(options).ok());
            let mut options: Map<String, Value> = options.unwrap_or_default();
            options.insert("include_usage".into(), true.into());
            fields.set("stream_options", &options)?;
        }
        Ok(serde_json::to_string(fields)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent_on(body: &str, may_use: u64, bound_by: Option<Bound>) -> String {
        Call::read(body.as_bytes(), 4_096).unwrap().sent_on(may_use, bound_by, 4_096).unwrap()
    }

    /// A body with these fields at its end.
    fn with(fields: &str) -> String {
        format!(r#"{{"z":1.50,"model":"m","messages":[{{"role":"user","content":"x"}}]{fields}}}"#)
    }

    #[test]
    fn what_streams_is_sent_on_as_it_came() {
        let usage = r#","stream_options":{"include_usage":true}"#;
        for limit in ["", r#","max_tokens":9000"#, r#","max_completion_tokens":9000"#] {
            let came = format!(r#"{limit},"stream":true"#);
            assert_eq!(sent_on(&with(&came), 100, None), with(&format!("{came}{usage}")));
        }
        let came = r#","stream":true,"stream_options":{"include_usage":false,"x":1},"n":2"#;
        let sent = r#","stream":true,"stream_options":{"include_usage":true,"x":1},"n":2"#;
        assert_eq!(sent_on(&with(came), 100, None), with(sent));
        let bound = format!(r#","stream":true,"max_completion_tokens":4096{usage}"#);
        assert_eq!(sent_on(&with(r#","stream":true"#), 100, Some(Bound::MaxCompletionTokens)), with(&bound));
    }

    #[test]
    fn what_does_not_stream_is_bounded_by_what_is_left_under_the_name_that_the_caller_used() {
        let cases = [
            (r#","max_tokens":9000"#, r#","max_tokens":100"#),
            (
                r#","max_completion_tokens":9000,"stream":null"#,
                r#","max_completion_tokens":100,"stream":null"#,
            ),
            (r#","max_tokens":9000,"n":3"#, r#","max_tokens":33,"n":3"#),
            (r#","max_tokens":99,"stream":false"#, r#","max_tokens":99,"stream":false"#),
            ("", ""),
        ];
        for (came, sent) in cases {
            assert_eq!(sent_on(&with(came), 100, None), with(sent));
        }
        let bound = Some(Bound::MaxCompletionTokens);
        assert_eq!(sent_on(&with(""), 100, bound), with(r#","max_completion_tokens":100"#));
        assert_eq!(sent_on(&with(""), 9_000, bound), with(r#","max_completion_tokens":4096"#));
        assert_eq!(sent_on(&with(r#","max_tokens":5"#), 9_000, bound), with(r#","max_tokens":5"#));
    }
}

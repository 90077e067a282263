//! A request as it is metered and sent on.

use serde_json::{Map, Value};

use crate::api::{Api, Request, Streaming};
use crate::fields::Fields;
use crate::metering::Asked;
use crate::refusal::Refusal;
use crate::tenants::Bound;
use crate::tokens::Counter;

/// A request to the model.
pub(super) struct Call {
    pub(super) request: Request,
    pub(super) counter: Counter,
    pub(super) asked: Asked,
    fields: Fields,
}

impl Call {
    pub(super) fn read(api: &'static Api, body: &[u8], max_tokens_default: u64) -> Result<Self, Refusal> {
        let fields: Fields = serde_json::from_slice(body)?;
        let request = Request::read(api, &fields).map_err(Refusal::Malformed)?;
        let counter = Counter::of(&request.model);
        let most_each = if api.generates() { request.limit().unwrap_or(max_tokens_default) } else { 0 };
        let most = most_each.saturating_mul(request.choices);
        let asked = Asked { prompt: counter.prompt(&request), most };
        Ok(Self { request, counter, asked, fields })
    }

    /// Returns the streaming of the API, if the response is a stream.
    pub(super) fn streaming(&self) -> Option<&'static Streaming> {
        self.request.api.stream.as_ref().filter(|_| self.request.streams)
    }

    /// Returns the body for the upstream: the caller's, with what metering needs. That is the usage at the end of a
    /// stream, and a limit for a response that does not stream, because it cannot be cut.
    pub(super) fn sent_on(
        &mut self,
        may_use: u64,
        bound_by: Option<Bound>,
        max_tokens_default: u64,
    ) -> Result<String, Refusal> {
        let added = self.added_limit(bound_by);
        let (streaming, Self { request, fields, .. }) = (self.streaming(), self);
        let most_each = match streaming {
            Some(_) => u64::MAX,
            None => (may_use / request.choices).max(request.api.limit.min),
        };
        for &(name, wanted) in &request.limits {
            if wanted > most_each {
                fields.set(name, &most_each)?;
            }
        }
        if let Some(name) = added {
            fields.set(name, &max_tokens_default.min(most_each))?;
        }
        if streaming.is_some_and(|streaming| streaming.usage_on_request) {
            let options = fields.get("stream_options").and_then(|options| serde_json::from_str(options).ok());
            let mut options: Map<String, Value> = options.unwrap_or_default();
            options.insert("include_usage".into(), true.into());
            fields.set("stream_options", &options)?;
        }
        Ok(serde_json::to_string(fields)?)
    }

    /// Returns the name of the limit to add to a request that has none.
    fn added_limit(&self, bound_by: Option<Bound>) -> Option<&'static str> {
        let limit = &self.request.api.limit;
        let configured =
            bound_by.map(Bound::label).filter(|name| limit.names.len() > 1 && limit.names.contains(name));
        let fixed = limit.added.filter(|_| !self.request.streams);
        configured.or(fixed).filter(|_| self.request.limits.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{CHAT, EMBEDDINGS, MESSAGES, RESPONSES};

    fn sent_on(body: &str, may_use: u64, bound_by: Option<Bound>) -> String {
        Call::read(&CHAT, body.as_bytes(), 4_096).unwrap().sent_on(may_use, bound_by, 4_096).unwrap()
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

    #[test]
    fn each_api_is_bounded_by_its_own_limit() {
        let sent = |api, body: &str, may_use| {
            Call::read(api, body.as_bytes(), 4_096)
                .unwrap()
                .sent_on(may_use, Some(Bound::MaxTokens), 4_096)
                .unwrap()
        };
        let bare = r#"{"model":"m","input":"x"}"#;
        let with = |limit: u64| format!(r#"{{"model":"m","input":"x","max_output_tokens":{limit}}}"#);
        assert_eq!(sent(&RESPONSES, bare, 100), with(100));
        assert_eq!(sent(&RESPONSES, &with(9_000), 100), with(100));
        assert_eq!(sent(&RESPONSES, &with(9_000), 1), with(16), "the least that the API accepts");
        assert_eq!(sent(&EMBEDDINGS, bare, 100), bare);
        let streams = r#"{"model":"m","input":"x","stream":true}"#;
        assert_eq!(sent(&RESPONSES, streams, 100), streams);
        let message = |limit: u64| format!(r#"{{"model":"m","messages":[],"max_tokens":{limit}}}"#);
        assert_eq!(sent(&MESSAGES, &message(9_000), 100), message(100));
        let unlimited = r#"{"model":"m","messages":[]}"#;
        assert_eq!(sent(&MESSAGES, unlimited, 100), unlimited);
    }

    #[test]
    fn embeddings_ask_for_their_prompt_only_and_never_stream() {
        let body = br#"{"model":"gpt-4o","input":"hello world","stream":true,"max_tokens":9}"#;
        let call = Call::read(&EMBEDDINGS, body, 4_096).unwrap();
        assert_eq!((call.asked.prompt, call.asked.most), (2, 0));
        assert!(call.streaming().is_none());
    }
}

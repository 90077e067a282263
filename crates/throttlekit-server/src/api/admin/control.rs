//! Actions of operators on the whole server: drain, reload, log filter, configuration.

use std::sync::Arc;

use serde_json::{Value, json};
use throttlekit_proto::v1;
use tokio::sync::watch;

use super::attempt::{Attempt, Subject};
use super::{Operator, who};
use crate::access::Caller;
use crate::audit::{AUDIT, Action};
use crate::engine::{Engine, Refusal};
use crate::listen::Tls;
use crate::policy::{Endpoint, PolicyFile};
use crate::reload::Reloader;
use crate::telemetry::set_log_filter;

/// Text in place of the digest of a secret.
const REDACTED: &str = "(redacted)";

/// A running server as its operators control it.
pub(crate) struct Control {
    pub(crate) engine: Engine,
    pub(crate) reloader: Arc<Reloader>,
    pub(crate) tls: Option<Tls>,
    /// The options of the server, without secrets.
    pub(crate) options: Value,
    /// True once an operator requested a stop.
    pub(crate) stop: watch::Sender<bool>,
}

impl Control {
    /// Reads the policy file, the token files and the certificates now, and logs the result. Returns whether something
    /// changed.
    pub(crate) async fn look(&self) -> bool {
        // A changed file is applied once two reads of it were identical.
        let mut changed = self.reloader.look_and_log(&self.engine).await;
        changed |= self.reloader.look_and_log(&self.engine).await;
        if let Some(tls) = &self.tls {
            changed |= tls.clone().reload_and_log().await;
        }
        if !changed {
            tracing::info!("policy file and certificates unchanged");
        }
        changed
    }

    /// Returns the configuration in effect.
    fn configuration(&self) -> Value {
        let status = self.reloader.status();
        json!({
            "options": self.options,
            "policy_file": {
                "hash": status.hash,
                "loaded_at": status.loaded_at.as_millis_ceil(),
                "last_error": status.last_error,
                "content": redacted(&self.engine.file()),
            },
        })
    }
}

impl Operator {
    fn control(&self, caller: &Caller) -> Result<&Control, Refusal> {
        caller.may_everywhere(Endpoint::Admin)?;
        let none = || Refusal::Unsupported("this engine runs without a server".into());
        self.control.as_deref().ok_or_else(none)
    }

    /// Begins to stop the server.
    pub(in crate::api) fn drain(&self, caller: &Caller) -> Result<v1::DrainResponse, Refusal> {
        Attempt::of(caller, Action::Drain, Subject::default()).ended(self.try_drain(caller))
    }

    fn try_drain(&self, caller: &Caller) -> Result<v1::DrainResponse, Refusal> {
        let control = self.control(caller)?;
        self.done(Action::Drain);
        let (principal, peer) = who(caller);
        tracing::info!(target: AUDIT, principal, peer, "server drained");
        control.engine.begin_draining();
        control.stop.send_replace(true);
        Ok(v1::DrainResponse {})
    }

    /// Reads the files of the server again.
    pub(in crate::api) async fn reload(&self, caller: &Caller) -> Result<v1::ReloadResponse, Refusal> {
        let attempt = Attempt::of(caller, Action::Reload, Subject::default());
        attempt.perform(self.try_reload(caller)).await
    }

    async fn try_reload(&self, caller: &Caller) -> Result<v1::ReloadResponse, Refusal> {
        let control = self.control(caller)?;
        let changed = Box::pin(control.look()).await;
        self.done(Action::Reload);
        let (principal, peer) = who(caller);
        tracing::info!(target: AUDIT, principal, peer, changed, "files reloaded");
        let status = control.reloader.status();
        let error = status.last_error.clone().unwrap_or_default();
        Ok(v1::ReloadResponse { config_hash: status.hash.clone(), error })
    }

    /// Sets the log filter.
    pub(in crate::api) fn set_log_filter(
        &self,
        caller: &Caller,
        request: &v1::SetLogFilterRequest,
    ) -> Result<v1::SetLogFilterResponse, Refusal> {
        let attempt = Attempt::of(caller, Action::SetLogFilter, Subject::default());
        attempt.ended(self.try_set_log_filter(caller, request))
    }

    fn try_set_log_filter(
        &self,
        caller: &Caller,
        request: &v1::SetLogFilterRequest,
    ) -> Result<v1::SetLogFilterResponse, Refusal> {
        self.control(caller)?;
        let filter = request.filter.as_str();
        set_log_filter(filter).map_err(|error| Refusal::Invalid(error.to_string()))?;
        self.done(Action::SetLogFilter);
        let (principal, peer) = who(caller);
        tracing::info!(target: AUDIT, principal, peer, filter, "log filter set");
        Ok(v1::SetLogFilterResponse {})
    }

    /// Returns the configuration of the server as a JSON document.
    pub(in crate::api) fn configuration(&self, caller: &Caller) -> Result<Value, Refusal> {
        let attempt = Attempt::of(caller, Action::GetConfig, Subject::default());
        attempt.ended(self.try_configuration(caller))
    }

    fn try_configuration(&self, caller: &Caller) -> Result<Value, Refusal> {
        let control = self.control(caller)?;
        self.done(Action::GetConfig);
        let (principal, peer) = who(caller);
        tracing::info!(target: AUDIT, principal, peer, "configuration read");
        Ok(control.configuration())
    }
}

/// Returns a policy file without the digests of tokens, which would allow guessing short ones.
fn redacted(file: &PolicyFile) -> Value {
    let mut file = file.clone();
    for principal in file.access.iter_mut().flat_map(|access| access.principals.values_mut()) {
        let listed = principal.tokens.iter_mut().map(|token| &mut token.sha256);
        let digests = std::iter::once(&mut principal.token_sha256).chain(listed);
        digests.flatten().for_each(|digest| REDACTED.clone_into(digest));
    }
    serde_json::to_value(&file).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_of_tokens_are_not_shown() {
        let digest = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae";
        let text = format!(
            "version: 1
policies: {{api: {{rate: {{limit: 5, per: 1s}}}}}}
access:
  principals:
    one: {{token_sha256: {digest}, allow: [{{endpoints: [check]}}]}}
    two: {{tokens: [{{sha256: {}}}], allow: [{{endpoints: [check]}}]}}
",
            digest.replace('2', "3")
        );
        let (file, _) = crate::policy::load(&text).unwrap();
        let shown = redacted(&file);
        assert_eq!(shown["access"]["principals"]["one"]["token_sha256"], REDACTED);
        assert_eq!(shown["access"]["principals"]["two"]["tokens"][0]["sha256"], REDACTED);
        assert_eq!(shown["policies"]["api"]["rate"][0]["limit"], 5);
        assert!(!shown.to_string().contains("b68ffc68ff99b"));
    }
}

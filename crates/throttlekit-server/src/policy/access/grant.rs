//! One line of an allow-list.

use super::{Endpoint, GrantSpec};

/// One line of an allow-list, compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    endpoints: Vec<Endpoint>,
    /// Empty: any.
    policies: Vec<Pattern>,
    keys: Box<[u8]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    Is(Box<str>),
    Begins(Box<str>),
}

impl Grant {
    pub(crate) fn of(spec: &GrantSpec) -> Result<Self, String> {
        if spec.endpoints.is_empty() {
            return Err("the grant allows nothing: name at least one endpoint in `endpoints`".into());
        }
        if spec.policies.as_ref().is_some_and(Vec::is_empty) || spec.keys.as_deref() == Some("") {
            return Err(
                "empty `policies` or `keys` would allow all of them: list some, or remove the field".into()
            );
        }
        let policies =
            spec.policies.iter().flatten().map(|text| Pattern::of(text)).collect::<Result<_, _>>()?;
        let keys = spec.keys.as_deref().unwrap_or_default().as_bytes().into();
        Ok(Self { endpoints: spec.endpoints.clone(), policies, keys })
    }

    pub(crate) fn opens(&self, endpoint: Endpoint) -> bool {
        self.endpoints.contains(&endpoint)
    }

    /// Checks whether it opens an endpoint for all policies and keys.
    pub(crate) fn covers_all(&self, endpoint: Endpoint) -> bool {
        self.opens(endpoint) && self.policies.is_empty() && self.keys.is_empty()
    }

    pub(crate) fn allows(&self, endpoint: Endpoint, policy: &str, key: &[u8]) -> bool {
        let any = self.policies.is_empty();
        self.opens(endpoint)
            && (any || self.policies.iter().any(|pattern| pattern.fits(policy)))
            && key.starts_with(&self.keys)
    }
}

impl Pattern {
    fn of(text: &str) -> Result<Self, String> {
        match text.split_once('*') {
            _ if text.is_empty() => Err("an empty policy name matches nothing".into()),
            None => Ok(Self::Is(text.into())),
            Some((beginning, "")) => Ok(Self::Begins(beginning.into())),
            Some(_) => Err(format!("`{text}`: a `*` is allowed at the end of a policy name only")),
        }
    }

    fn fits(&self, policy: &str) -> bool {
        match self {
            Self::Is(name) => **name == *policy,
            Self::Begins(beginning) => policy.starts_with(&**beginning),
        }
    }
}

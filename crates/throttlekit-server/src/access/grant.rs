//! One line of an allow-list.

use super::{Door, GrantSpec};

/// One line of an allow-list, ready to be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Grant {
    doors: Vec<Door>,
    /// Empty: any.
    policies: Vec<Pattern>,
    keys: Box<[u8]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    Is(Box<str>),
    Begins(Box<str>),
}

/// What is wrong with a line of an allow-list.
pub(crate) fn judge(spec: &GrantSpec) -> Result<(), String> {
    Grant::of(spec).map(drop)
}

impl Grant {
    pub(super) fn of(spec: &GrantSpec) -> Result<Self, String> {
        if spec.doors.is_empty() {
            return Err("a grant without doors allows nothing: name some in `doors`".into());
        }
        if spec.policies.as_ref().is_some_and(Vec::is_empty) || spec.keys.as_deref() == Some("") {
            return Err(
                "an empty `policies` or `keys` would allow all of them: name some, or leave it out".into()
            );
        }
        let policies =
            spec.policies.iter().flatten().map(|text| Pattern::of(text)).collect::<Result<_, _>>()?;
        let keys = spec.keys.as_deref().unwrap_or_default().as_bytes().into();
        Ok(Self { doors: spec.doors.clone(), policies, keys })
    }

    pub(super) fn opens(&self, door: Door) -> bool {
        self.doors.contains(&door)
    }

    pub(super) fn allows(&self, door: Door, policy: &str, key: &[u8]) -> bool {
        let any = self.policies.is_empty();
        self.opens(door)
            && (any || self.policies.iter().any(|pattern| pattern.fits(policy)))
            && key.starts_with(&self.keys)
    }
}

impl Pattern {
    fn of(text: &str) -> Result<Self, String> {
        match text.split_once('*') {
            _ if text.is_empty() => Err("an empty policy name fits nothing".into()),
            None => Ok(Self::Is(text.into())),
            Some((beginning, "")) => Ok(Self::Begins(beginning.into())),
            Some(_) => Err(format!("`{text}`: a `*` stands at the end of a policy name only")),
        }
    }

    fn fits(&self, policy: &str) -> bool {
        match self {
            Self::Is(name) => **name == *policy,
            Self::Begins(beginning) => policy.starts_with(&**beginning),
        }
    }
}

//! The body of a request, field by field. Fields that are not changed are sent on in their order, as they were written.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

/// The fields of an object.
#[derive(Debug)]
pub struct Fields(Vec<(String, Box<RawValue>)>);

impl Fields {
    /// The value of a field, as it was written.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(field, _)| field == name).map(|(_, value)| value.get())
    }

    /// Changes a field where it stands, or adds it.
    pub fn set(&mut self, name: &str, value: &impl Serialize) -> serde_json::Result<()> {
        let value = to_raw_value(value)?;
        match self.0.iter_mut().find(|(field, _)| field == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name.to_owned(), value)),
        }
        Ok(())
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Reads)
    }
}

struct Reads;

impl<'de> Visitor<'de> for Reads {
    type Value = Fields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
        let (mut fields, mut names) = (Vec::new(), HashSet::new());
        while let Some((name, value)) = map.next_entry::<String, _>()? {
            // The upstream might read another of two fields than was metered.
            if !names.insert(name.clone()) {
                return Err(A::Error::custom(format_args!("duplicate field `{name}`")));
            }
            fields.push((name, value));
        }
        Ok(Fields(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_changed_stays_as_it_was_written() {
        let mut fields: Fields = serde_json::from_str(r#"{"z":1.0,"a":{"y":1, "b":[ ]},"m":7}"#).unwrap();
        assert_eq!((fields.get("m"), fields.get("x")), (Some("7"), None));
        fields.set("a", &3).unwrap();
        fields.set("c", &true).unwrap();
        assert_eq!(serde_json::to_string(&fields).unwrap(), r#"{"z":1.0,"a":3,"m":7,"c":true}"#);
        assert!(serde_json::from_str::<Fields>("[]").is_err());
        assert!(serde_json::from_str::<Fields>(r#"{"a":1,"a":2}"#).is_err());
    }
}

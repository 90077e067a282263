//! Accessors of mappings, lists and choices, as serde calls them.

use serde::de::{self, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess, SeqAccess};
use serde::de::{VariantAccess, Visitor};

use super::super::error::{Place, step};
use super::super::tree::{Key, Node};
use super::read_error::ReadError;

/// Passes a mapping to a visitor.
pub(super) fn walk_mapping<'de, V: Visitor<'de>>(
    at: Place,
    pairs: &[(Key, Node)],
    visitor: V,
) -> Result<V::Value, ReadError> {
    visitor.visit_map(Pairs { pairs: pairs.iter(), value: None }).map_err(|wrong| wrong.at(at))
}

/// Passes a list to a visitor.
pub(super) fn walk_list<'de, V: Visitor<'de>>(
    at: Place,
    items: &[Node],
    visitor: V,
) -> Result<V::Value, ReadError> {
    visitor.visit_seq(Items { items: items.iter().enumerate() }).map_err(|wrong| wrong.at(at))
}

struct Pairs<'t> {
    pairs: std::slice::Iter<'t, (Key, Node)>,
    value: Option<&'t (Key, Node)>,
}

impl<'de> MapAccess<'de> for Pairs<'_> {
    type Error = ReadError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, ReadError> {
        self.value = self.pairs.find(|(_, value)| !value.is_removed());
        let Some((key, _)) = self.value else { return Ok(None) };
        let name: de::value::StrDeserializer<'_, ReadError> = (*key.text).into_deserializer();
        seed.deserialize(name).map(Some).map_err(|wrong| wrong.at(key.at))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, ReadError> {
        let (key, value) = self.value.ok_or_else(|| ReadError::new("a value without a key".into()))?;
        seed.deserialize(value).map_err(|wrong| wrong.at(value.at).under(format!(".{}", step(&key.text))))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.pairs.len())
    }
}

struct Items<'t> {
    items: std::iter::Enumerate<std::slice::Iter<'t, Node>>,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = ReadError;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, ReadError> {
        let Some((index, item)) = self.items.find(|(_, item)| !item.is_removed()) else { return Ok(None) };
        seed.deserialize(item).map(Some).map_err(|wrong| wrong.at(item.at).under(format!("[{index}]")))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

/// An enum value: a string, or a mapping of one key.
pub(super) struct Choice<'t> {
    pub(super) name: &'t str,
    pub(super) at: Place,
    pub(super) content: Option<&'t Node>,
}

impl<'de> EnumAccess<'de> for Choice<'_> {
    type Error = ReadError;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), ReadError> {
        let name: de::value::StrDeserializer<'_, ReadError> = self.name.into_deserializer();
        let value = seed.deserialize(name).map_err(|wrong| wrong.at(self.at))?;
        Ok((value, self))
    }
}

impl<'de> VariantAccess<'de> for Choice<'_> {
    type Error = ReadError;

    fn unit_variant(self) -> Result<(), ReadError> {
        match self.content {
            None => Ok(()),
            Some(_) => {
                Err(ReadError::new(format!("`{0}` takes no value: write `{0}` alone", self.name)).at(self.at))
            }
        }
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, ReadError> {
        match self.content {
            Some(content) => {
                seed.deserialize(content).map_err(|wrong| wrong.under(format!(".{}", self.name)))
            }
            None => Err(ReadError::new(format!("`{}` needs a value", self.name)).at(self.at)),
        }
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, ReadError> {
        let Some(content) = self.content else {
            return Err(ReadError::new("expected a list".into()).at(self.at));
        };
        content.deserialize_seq(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        let (name, needs) = (self.name, fields.join(", "));
        match self.content {
            Some(content) => content
                .deserialize_struct("", fields, visitor)
                .map_err(|wrong| wrong.under(format!(".{name}"))),
            None => {
                Err(ReadError::new(format!("`{name}` needs {needs}: write `{{{name}: {{{needs}: …}}}}`"))
                    .at(self.at))
            }
        }
    }
}

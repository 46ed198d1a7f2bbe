//! Reading tables part by part, so that all mistakes in one are told and not the first alone.

use std::collections::BTreeSet;

use serde_json::Value as Json;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

/// A value as far as it can be read, and what is wrong with it.
pub(super) struct Read<T> {
    pub(super) value: Option<T>,
    pub(super) mistakes: Vec<String>,
}

/// A table that can be taken to pieces.
pub(super) trait Parts: Clone {
    /// A table for each of its keys; for each element where there is an array. None for what is no table.
    fn parts(&self) -> Option<Vec<(String, Self)>>;
    /// A table with all that these tables have.
    fn joined(parts: Vec<Self>) -> Self;
}

/// Reads a table, piece by piece if it cannot be read whole. In the place of what it cannot be without is put
/// what `needed` has.
pub(super) fn read_by_parts<V: Parts, T, E>(
    value: &V,
    needed: &V,
    read: impl Fn(V) -> Result<T, E>,
    say: &mut impl FnMut(E) -> String,
) -> Read<T> {
    let first = match read(value.clone()) {
        Ok(value) => return Read { value: Some(value), mistakes: Vec::new() },
        Err(first) => first,
    };
    let (Some(parts), Some(needed)) = (value.parts(), needed.parts()) else {
        return Read { value: None, mistakes: vec![say(first)] };
    };
    let there: BTreeSet<&String> = parts.iter().map(|(key, _)| key).collect();
    let missing = needed.iter().filter(|(key, _)| !there.contains(key));
    let mut mistakes: Vec<String> = missing.map(|(key, _)| format!("missing field `{key}`")).collect();
    let mut good: Vec<&(String, V)> = Vec::new();
    for part in &parts {
        let others = needed.iter().filter(|(key, _)| *key != part.0);
        let alone = others.chain([part]).map(|(_, part)| part.clone()).collect();
        match read(V::joined(alone)) {
            Ok(_) => good.push(part),
            Err(error) => mistakes.push(say(error)),
        }
    }
    if mistakes.is_empty() {
        mistakes.push(say(first));
    }
    let is_good = |key: &String| good.iter().any(|(known, _)| known == key);
    let added: Vec<_> = needed.iter().filter(|(key, _)| !is_good(key)).collect();
    let all = good.into_iter().chain(added).map(|(_, part)| part.clone()).collect();
    Read { value: read(V::joined(all)).ok(), mistakes }
}

impl Parts for Json {
    fn parts(&self) -> Option<Vec<(String, Self)>> {
        let one = |key: &String, value: Self| {
            (key.clone(), Self::Object([(key.clone(), value)].into_iter().collect()))
        };
        let each = |(key, value): (&String, &Self)| match value {
            Self::Array(all) => all.iter().map(|each| one(key, vec![each.clone()].into())).collect(),
            value => vec![one(key, value.clone())],
        };
        Some(self.as_object()?.iter().flat_map(each).collect())
    }

    fn joined(parts: Vec<Self>) -> Self {
        let mut all = serde_json::Map::new();
        for part in parts {
            let Self::Object(part) = part else { continue };
            for (key, value) in part {
                match (all.get_mut(&key), value) {
                    (Some(Self::Array(known)), Self::Array(more)) => known.extend(more),
                    (_, value) => {
                        let _ = all.insert(key, value);
                    }
                }
            }
        }
        Self::Object(all)
    }
}

impl<'i> Parts for Spanned<DeValue<'i>> {
    fn parts(&self) -> Option<Vec<(String, Self)>> {
        let DeValue::Table(table) = self.get_ref() else { return None };
        let mut parts = Vec::new();
        for (key, value) in table {
            let mut one = |value: DeValue<'i>, span| {
                let mut alone = DeTable::new();
                alone.insert(key.clone(), Spanned::new(span, value));
                parts.push((key.get_ref().to_string(), Spanned::new(self.span(), DeValue::Table(alone))));
            };
            match value.get_ref() {
                DeValue::Array(all) => {
                    for each in all.iter() {
                        let mut alone = DeArray::new();
                        alone.push(each.clone());
                        one(DeValue::Array(alone), value.span());
                    }
                }
                other => one(other.clone(), value.span()),
            }
        }
        Some(parts)
    }

    fn joined(parts: Vec<Self>) -> Self {
        let span = parts.last().map(Self::span).unwrap_or_default();
        let mut all = DeTable::new();
        for part in parts {
            let DeValue::Table(part) = part.into_inner() else { continue };
            for (key, value) in part {
                let span = value.span();
                match (all.get_mut(&key).map(Spanned::get_mut), value.into_inner()) {
                    (Some(DeValue::Array(known)), DeValue::Array(more)) => {
                        more.into_iter().for_each(|each| known.push(each));
                    }
                    (_, value) => {
                        let _ = all.insert(key, Spanned::new(span, value));
                    }
                }
            }
        }
        Spanned::new(span, DeValue::Table(all))
    }
}

//! How a file says what serde cannot know: points and rules by their names, weights by what they weigh.

use mdspace_engine::array::{Point, Rule};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A point of the engine's orderings, by its name.
pub(crate) mod point {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(point: &Point, to: S) -> Result<S::Ok, S::Error> {
        point.name().serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Point, D::Error> {
        let name = String::deserialize(from)?;
        let found = Point::ALL.iter().find(|point| point.name() == name).copied();
        found.ok_or_else(|| D::Error::custom(format!("the engine has no point {name}")))
    }
}

/// A rule of the engine, or none, by its name.
pub(crate) mod rule {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(rule: &Option<Rule>, to: S) -> Result<S::Ok, S::Error> {
        rule.map(Rule::name).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Rule>, D::Error> {
        let Some(name) = Option::<String>::deserialize(from)? else { return Ok(None) };
        let found = Rule::ALL.iter().find(|rule| rule.name() == name).copied();
        found.map(Some).ok_or_else(|| D::Error::custom(format!("the engine has no rule {name}")))
    }
}

/// Weights of happenings, those that have one.
pub(crate) mod weights {
    use std::collections::BTreeMap;

    use super::super::Happening;
    use super::*;

    type Weights = [u32; Happening::ALL.len()];

    pub(crate) fn serialize<S: Serializer>(weights: &Weights, to: S) -> Result<S::Ok, S::Error> {
        let named = Happening::ALL.iter().zip(weights).filter(|(_, weight)| **weight > 0);
        let named: BTreeMap<String, u32> =
            named.map(|(happening, weight)| (format!("{happening:?}"), *weight)).collect();
        named.serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Weights, D::Error> {
        let mut weights: Weights = [0; Happening::ALL.len()];
        for (name, weight) in BTreeMap::<String, u32>::deserialize(from)? {
            let at = Happening::ALL.iter().position(|happening| format!("{happening:?}") == name);
            let at = at.ok_or_else(|| D::Error::custom(format!("nothing is called {name}")))?;
            weights[at] = weight;
        }
        Ok(weights)
    }
}

/// A word of the program. One of the few files that it reads stays as long as it runs.
pub(crate) mod kept {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(word: &str, to: S) -> Result<S::Ok, S::Error> {
        word.serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<&'static str, D::Error> {
        Ok(String::deserialize(from)?.leak())
    }
}

/// Keys of the array and their values.
pub(crate) mod tuning {
    use super::*;

    type Tuning = Vec<(&'static str, &'static str)>;

    pub(crate) fn serialize<S: Serializer>(tuning: &Tuning, to: S) -> Result<S::Ok, S::Error> {
        tuning.as_slice().serialize(to)
    }

    /// As with [`kept`](super::kept).
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Tuning, D::Error> {
        let kept = |word: String| -> &'static str { word.leak() };
        let read = Vec::<(String, String)>::deserialize(from)?;
        Ok(read.into_iter().map(|(key, value)| (kept(key), kept(value))).collect())
    }
}

/// Flags of members, as md's byte.
pub(crate) mod flags {
    use mdspace_format::superblock::MemberFlags;

    use super::*;

    pub(crate) fn serialize<S: Serializer>(
        flags: &[MemberFlags],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        flags.iter().map(|flags| flags.0).collect::<Vec<u8>>().serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<MemberFlags>, D::Error> {
        Ok(Vec::<u8>::deserialize(from)?.into_iter().map(MemberFlags).collect())
    }
}

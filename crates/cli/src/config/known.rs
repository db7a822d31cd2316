//! Members that a configuration knows of, be they there or not.

use std::collections::BTreeMap;

/// Members by name, and what each is by its superblock, as far as that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KnownMembers {
    /// The array that they are of; none where the configuration does not say it.
    array: Option<String>,
    members: BTreeMap<String, Option<String>>,
}

impl KnownMembers {
    /// Of `array`: members by name, with the UUIDs that are known of them.
    pub(crate) fn new<'a>(
        array: Option<String>,
        names: impl IntoIterator<Item = &'a String>,
        uuids: &BTreeMap<String, String>,
    ) -> Self {
        let known = |name: &String| (name.clone(), uuids.get(name).cloned());
        Self { array, members: names.into_iter().map(known).collect() }
    }

    /// One more of the same array.
    pub(crate) fn note(&mut self, name: String) {
        self.members.entry(name).or_default();
    }

    /// Forgets those of these names, or with this UUID; false if there is none.
    pub(crate) fn forget(&mut self, names: &[&str], uuid: Option<&str>) -> bool {
        let before = self.members.len();
        let is_it = |name: &str, known: Option<&str>| {
            names.contains(&name) || known.is_some() && known == uuid
        };
        self.members.retain(|name, known| !is_it(name, known.as_deref()));
        self.members.len() < before
    }

    /// Those that are none of `present`, which are members of `array` by name and UUID. A member under another name is
    /// the same one.
    pub(crate) fn missing(
        &self,
        array: &str,
        present: &BTreeMap<String, String>,
    ) -> BTreeMap<String, Option<String>> {
        let is_same_array = self.array.as_deref().is_none_or(|known| known == array);
        let is_present = |name: &str, uuid: &Option<String>| {
            let has_uuid = |present: &String| Some(present) == uuid.as_ref();
            present.contains_key(name) || present.values().any(has_uuid)
        };
        let all = self.members.iter().filter(|_| is_same_array);
        all.filter(|(name, uuid)| !is_present(name, uuid))
            .map(|(name, uuid)| (name.clone(), uuid.clone()))
            .collect()
    }
}

#[cfg(test)]
mod tests;

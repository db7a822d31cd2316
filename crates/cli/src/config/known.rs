//! Members that a configuration knows of, be they there or not.

use std::collections::BTreeMap;

use mdspace_format::Uuid;

/// Members by name, and what each is by its superblock, as far as that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KnownMembers {
    /// The array that they are of; none where the configuration does not say it.
    array: Option<Uuid>,
    members: BTreeMap<String, Option<Uuid>>,
}

impl KnownMembers {
    /// Of `array`: members by name, with the UUIDs that are known of them.
    pub(crate) fn new(
        array: Option<Uuid>,
        members: impl IntoIterator<Item = (String, Option<Uuid>)>,
    ) -> Self {
        Self { array, members: members.into_iter().collect() }
    }

    /// One more of the same array.
    pub(crate) fn note(&mut self, name: String) {
        self.members.entry(name).or_default();
    }

    /// Those of which it is not known what they are.
    pub(crate) fn unidentified(&self) -> Vec<String> {
        let unknown = self.members.iter().filter(|(_, uuid)| uuid.is_none());
        unknown.map(|(name, _)| name.clone()).collect()
    }

    /// A known member is this one, whatever its name leads to later.
    pub(crate) fn identify(&mut self, name: &str, uuid: Uuid) {
        if let Some(known) = self.members.get_mut(name) {
            *known = Some(uuid);
        }
    }

    /// Forgets those of these names, or with this UUID; false if there is none.
    pub(crate) fn forget(&mut self, names: &[&str], uuid: Option<Uuid>) -> bool {
        let before = self.members.len();
        let is_it = |name: &str, known: Option<Uuid>| {
            names.contains(&name) || known.is_some() && known == uuid
        };
        self.members.retain(|name, known| !is_it(name, *known));
        self.members.len() < before
    }

    /// Those that are none of `there`, which are members of `array` by name and UUID. A member under another name is
    /// the same one.
    pub(crate) fn missing(
        &self,
        array: Uuid,
        there: &BTreeMap<String, Uuid>,
    ) -> BTreeMap<String, Option<Uuid>> {
        if self.array.is_some_and(|known| known != array) {
            return BTreeMap::new();
        }
        let is_there = |name: &str, uuid: Option<Uuid>| {
            there.contains_key(name) || there.values().any(|there| Some(*there) == uuid)
        };
        let missing = self.members.iter().filter(|(name, uuid)| !is_there(name, **uuid));
        missing.map(|(name, uuid)| (name.clone(), *uuid)).collect()
    }
}

#[cfg(test)]
mod tests;

//! A UUID as a word of a configuration.

use mdspace_format::{InvalidUuid, Uuid};
use serde::{Deserialize, Serialize};

/// Read in any way that `--uuid` takes, written as mdadm does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct UuidWord(pub(crate) Uuid);

impl TryFrom<String> for UuidWord {
    type Error = InvalidUuid;

    fn try_from(word: String) -> Result<Self, InvalidUuid> {
        word.parse().map(Self)
    }
}

impl From<UuidWord> for String {
    fn from(UuidWord(uuid): UuidWord) -> Self {
        uuid.to_string()
    }
}

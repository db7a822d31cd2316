use std::fmt;

/// The array's name: up to 32 bytes, padded with zeros, `host:name` as a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SetName(pub [u8; 32]);

/// A name of more than 32 bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("array name {name:?} has {} bytes, at most 32 fit in a superblock", name.len())]
pub struct NameTooLong {
    name: String,
}

impl SetName {
    /// The name as given; an error if it has more than 32 bytes.
    pub fn new(name: &str) -> Result<SetName, NameTooLong> {
        let mut bytes = [0; 32];
        let room =
            bytes.get_mut(..name.len()).ok_or_else(|| NameTooLong { name: name.to_owned() })?;
        room.copy_from_slice(name.as_bytes());
        Ok(SetName(bytes))
    }

    /// `host:name` as mdadm makes it: a name that would then need 32 bytes or more, or that has
    /// a colon already, stays without the host.
    pub fn with_host(host: Option<&str>, name: &str) -> Result<SetName, NameTooLong> {
        match host {
            Some(host) if !name.contains(':') && host.len() + 1 + name.len() < 32 => {
                SetName::new(&format!("{host}:{name}"))
            }
            _ => SetName::new(name),
        }
    }

    /// The bytes before the padding.
    pub fn as_bytes(&self) -> &[u8] {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len());
        &self.0[..end]
    }

    /// The part before the first colon, if there is one.
    pub fn host(&self) -> Option<String> {
        let text = self.to_string();
        text.split_once(':').map(|(host, _)| host.to_owned())
    }

    /// The part behind the first colon, or all of it.
    pub fn short(&self) -> String {
        let text = self.to_string();
        text.split_once(':').map_or(text.clone(), |(_, name)| name.to_owned())
    }
}

impl fmt::Display for SetName {
    /// Bytes that are not UTF-8 come out as the replacement character.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&String::from_utf8_lossy(self.as_bytes()))
    }
}

use std::fmt;
use std::str::FromStr;

/// The 16 bytes that name an array or a member, in the order in which they lie on disk.
///
/// Printed as mdadm prints them: four groups of four bytes, separated by colons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// The all-zero value, which names nothing.
    pub const NIL: Uuid = Uuid([0; 16]);
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if index > 0 && index % 4 == 0 {
                f.write_str(":")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// Text that is not a UUID.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a UUID: 32 hexadecimal digits are needed, ':', '-', '.' and ' ' between them"
)]
pub struct InvalidUuid {
    text: String,
}

impl FromStr for Uuid {
    type Err = InvalidUuid;

    /// Reads 32 hexadecimal digits; like mdadm it passes over `:`, `-`, `.` and spaces.
    fn from_str(text: &str) -> Result<Uuid, InvalidUuid> {
        let invalid = || InvalidUuid { text: text.to_owned() };
        let mut bytes = [0u8; 16];
        let mut digits = 0;
        for character in text.chars().filter(|c| !matches!(c, ':' | '-' | '.' | ' ')) {
            let digit = character.to_digit(16).ok_or_else(invalid)? as u8;
            let byte = bytes.get_mut(digits / 2).ok_or_else(invalid)?;
            *byte = *byte << 4 | digit;
            digits += 1;
        }
        if digits == 32 { Ok(Uuid(bytes)) } else { Err(invalid()) }
    }
}

#[cfg(test)]
mod tests;

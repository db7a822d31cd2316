/// What a member is to its array: one `u16` of `dev_roles` (superblock bytes 256 and up).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Waiting to be used; 0xffff.
    Spare,
    /// Failed, or never there; 0xfffe.
    Faulty,
    /// The journal of a parity array; 0xfffd.
    Journal,
    /// In the array, at this place; below 0xff00.
    Slot(u16),
}

impl Role {
    /// First number that is no slot (md_p.h `MD_DISK_ROLE_MAX`).
    pub const SLOT_LIMIT: u16 = 0xff00;

    const SPARE: u16 = 0xffff;
    const FAULTY: u16 = 0xfffe;
    const JOURNAL: u16 = 0xfffd;

    /// The number that the superblock stores.
    pub fn number(self) -> u16 {
        match self {
            Role::Spare => Role::SPARE,
            Role::Faulty => Role::FAULTY,
            Role::Journal => Role::JOURNAL,
            Role::Slot(slot) => slot,
        }
    }

    /// The role that the superblock stores as `number`; none for the numbers md reserves.
    pub fn from_number(number: u16) -> Option<Role> {
        match number {
            Role::SPARE => Some(Role::Spare),
            Role::FAULTY => Some(Role::Faulty),
            Role::JOURNAL => Some(Role::Journal),
            slot if slot < Role::SLOT_LIMIT => Some(Role::Slot(slot)),
            _ => None,
        }
    }

    /// The slot, for a member that has one.
    pub fn slot(self) -> Option<u16> {
        match self {
            Role::Slot(slot) => Some(slot),
            _ => None,
        }
    }
}

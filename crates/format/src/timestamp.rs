/// A point in time as md stores it: 40 bits of seconds since 1970, 24 bits of microseconds above.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    const SECONDS_BITS: u32 = 40;
    const SECONDS_MASK: u64 = (1 << Timestamp::SECONDS_BITS) - 1;

    /// A whole second, as mdadm writes; later than the year 36812 is cut to it.
    pub fn from_seconds(seconds: u64) -> Timestamp {
        Timestamp(seconds.min(Timestamp::SECONDS_MASK))
    }

    /// The 64 bits of the on-disk field.
    pub fn from_raw(raw: u64) -> Timestamp {
        Timestamp(raw)
    }

    /// The 64 bits of the on-disk field.
    pub fn raw(self) -> u64 {
        self.0
    }

    /// Seconds since 1970, UTC.
    pub fn seconds(self) -> u64 {
        self.0 & Timestamp::SECONDS_MASK
    }

    /// Microseconds past the second; mdadm writes 0 here.
    pub fn microseconds(self) -> u32 {
        (self.0 >> Timestamp::SECONDS_BITS) as u32
    }
}

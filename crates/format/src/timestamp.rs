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

    /// A second and what is past it, modulo 10^6. mdspace writes microseconds that are never 0, the kernel's md
    /// writes none: so the field tells which of the two wrote a superblock last.
    pub fn with_microseconds(seconds: u64, microseconds: u32) -> Timestamp {
        let past = u64::from(microseconds % 1_000_000) << Timestamp::SECONDS_BITS;
        Timestamp(Timestamp::from_seconds(seconds).0 | past)
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

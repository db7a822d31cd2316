//! A new array.

use mdspace_engine::create::{self, Creation, NewDevice};
use mdspace_format::placement::BitmapRequest;
use mdspace_format::superblock::{MemberFlags, SetName};
use mdspace_format::{Level, MetadataVersion, Uuid, layout};

use crate::member::Member;
use crate::opened::{HOME, Opened};
use crate::{Array, Assemble, Error};

/// What a new array is to be. What is not said is as mdadm has it.
///
/// ```
/// # use mdspace::{Array, Level, Member};
/// let disks = [1 << 30, 1 << 30, 1 << 30, 1 << 30].map(Member::memory);
/// let array = Array::create("scratch", Level::Raid10)
///     .members(disks)
///     .layout("f2")
///     .chunk_bytes(64 << 10)
///     .assume_clean(true)
///     .lanes(2)
///     .start()?;
/// assert_eq!(array.status()?.layout, mdspace::layout::number(Level::Raid10, "f2").unwrap());
/// array.stop()?;
/// # Ok::<(), mdspace::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is done before start"]
pub struct Create {
    name: String,
    level: Level,
    members: Vec<Member>,
    spares: usize,
    layout: Option<String>,
    chunk_bytes: Option<u64>,
    member_bytes: Option<u64>,
    metadata: MetadataVersion,
    uuid: Uuid,
    bitmap: bool,
    assume_clean: bool,
    overwrite_members: bool,
    lanes: usize,
}

impl Create {
    pub(crate) fn new(name: String, level: Level) -> Self {
        Self {
            name,
            level,
            members: Vec::new(),
            spares: 0,
            layout: None,
            chunk_bytes: None,
            member_bytes: None,
            metadata: MetadataVersion::V1_2,
            uuid: Uuid::NIL,
            bitmap: level.is_redundant(),
            assume_clean: false,
            overwrite_members: false,
            lanes: 1,
        }
    }

    /// Adds a member for the next slot.
    pub fn member(mut self, member: impl Into<Member>) -> Self {
        self.members.push(member.into());
        self
    }

    /// Adds members for the next slots.
    pub fn members(mut self, members: impl IntoIterator<Item = impl Into<Member>>) -> Self {
        self.members.extend(members.into_iter().map(Into::into));
        self
    }

    /// So many of the members, the last ones, are spares. None by default.
    pub fn spares(mut self, count: usize) -> Self {
        self.spares = count;
        self
    }

    /// The layout, in mdadm's words: `left-symmetric` of RAID5 and 6, `n2`, `f2` or `o2` of RAID10, `original` of RAID0.
    /// [`layout::choices`] lists them.
    pub fn layout(mut self, word: impl Into<String>) -> Self {
        self.layout = Some(word.into());
        self
    }

    /// Bytes of a chunk; 512 KiB by default. RAID1 and linear have none.
    pub fn chunk_bytes(mut self, bytes: u64) -> Self {
        self.chunk_bytes = Some(bytes);
        self
    }

    /// Bytes to use of each member; as much as all of them have by default.
    pub fn member_bytes(mut self, bytes: u64) -> Self {
        self.member_bytes = Some(bytes);
        self
    }

    /// Where superblocks lie; 1.2 by default.
    pub fn metadata(mut self, version: MetadataVersion) -> Self {
        self.metadata = version;
        self
    }

    /// Its UUID; a random one by default.
    pub fn uuid(mut self, uuid: Uuid) -> Self {
        self.uuid = uuid;
        self
    }

    /// Whether it has a write-intent bitmap; without one a crash means a resync of everything. Levels with redundancy
    /// have one by default.
    pub fn bitmap(mut self, wanted: bool) -> Self {
        self.bitmap = wanted;
        self
    }

    /// Takes the members for in sync as they are, so that no first resync runs. Right for members that read as zeroes
    /// everywhere: files that were just made, memory. Wrong for anything else.
    pub fn assume_clean(mut self, yes: bool) -> Self {
        self.assume_clean = yes;
        self
    }

    /// Takes members whatever lies on them. All of it is lost. Without this a member is refused whose first or last MiB
    /// holds a byte that is not zero.
    pub fn overwrite_members(mut self, yes: bool) -> Self {
        self.overwrite_members = yes;
        self
    }

    /// How many threads serve it; one by default.
    pub fn lanes(mut self, count: usize) -> Self {
        self.lanes = count;
        self
    }

    /// Opens the members, writes the array to them, and starts it. Blocks. Nothing is written before every member is
    /// open, and found to be empty.
    pub fn start(self) -> Result<Array, Error> {
        let creation = self.creation()?;
        let opened = Opened::start(self.lanes)?;
        let mut places = Vec::new();
        for member in &self.members {
            if member.is_missing() {
                places.push(None);
                continue;
            }
            let (id, info) = opened.open(member, false)?;
            places.push(Some(NewDevice { id, info, flags: MemberFlags::default() }));
        }
        if !self.overwrite_members {
            let mut devices = places.iter().flatten();
            devices.try_for_each(|device| opened.refuse_full(device.id, &device.info))?;
        }
        let devices: Vec<_> =
            places.iter().flatten().map(|device| (device.id, device.info.clone())).collect();
        opened
            .lanes()?
            .call(HOME, async move |lane, _| create::make(&lane, creation, places).await)?;
        Assemble::new().assemble(opened, devices, Vec::new())
    }

    fn creation(&self) -> Result<Creation, Error> {
        let creation = Creation::new(self.set_name()?, self.level, self.slots()?);
        let chunk_sectors = self.chunk_sectors(creation.chunk_sectors)?;
        // In whole chunks, as mdadm.
        let chunk = u64::from(chunk_sectors.max(1));
        if self.bitmap && !self.level.is_redundant() {
            let why = format!("{} has no redundancy that a bitmap could keep right", self.level);
            return Err(asked(why, "leave the bitmap out"));
        }
        Ok(Creation {
            uuid: self.uuid,
            version: self.metadata,
            layout: self.layout_number(creation.layout)?,
            chunk_sectors,
            size_sectors: self.member_bytes.map(|bytes| bytes / 512 / chunk * chunk),
            bitmap: if self.bitmap { creation.bitmap } else { BitmapRequest::None },
            assume_clean: self.assume_clean,
            ..creation
        })
    }

    fn set_name(&self) -> Result<SetName, Error> {
        let cure = "choose another name";
        if self.name.chars().any(char::is_control) {
            return Err(asked("the name has control characters".into(), cure));
        }
        SetName::new(&self.name).map_err(|error| asked(error.to_string(), cure))
    }

    fn slots(&self) -> Result<u16, Error> {
        let (members, spares) = (self.members.len(), self.spares);
        match members.checked_sub(spares) {
            None | Some(0) => {
                let why = format!("{members} members, of which {spares} are spares, make no array");
                Err(asked(why, "give more members"))
            }
            Some(slots) => u16::try_from(slots)
                .map_err(|_| asked(format!("no array has {slots} slots"), "give fewer members")),
        }
    }

    fn layout_number(&self, default: u32) -> Result<u32, Error> {
        let Some(word) = &self.layout else { return Ok(default) };
        layout::number(self.level, word).ok_or_else(|| {
            let why = format!("{} has no layout {word:?}", self.level);
            asked(why, layout::choices(self.level))
        })
    }

    fn chunk_sectors(&self, default: u32) -> Result<u32, Error> {
        let Some(bytes) = self.chunk_bytes else { return Ok(default) };
        if !self.level.has_chunks() {
            return Err(asked(format!("{} has no chunks", self.level), "leave chunk_bytes out"));
        }
        let sectors = u32::try_from(bytes / 512).ok();
        let sectors = sectors.filter(|sectors| *sectors > 0 && bytes.is_multiple_of(512));
        sectors.ok_or_else(|| {
            asked(format!("no chunk has {bytes} bytes"), "give a power of two of at least 4096")
        })
    }
}

fn asked(why: String, cure: &str) -> Error {
    Error::Asked { why, cure: cure.into() }
}

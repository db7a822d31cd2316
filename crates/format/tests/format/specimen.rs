//! Superblocks and bitmaps to test with.

use mdspace_format::bitmap::{BitmapState, BitmapVersion};
use mdspace_format::new_array::{NewArray, NewMember};
use mdspace_format::placement::{ArrayPlacement, BitmapRequest, Request};
use mdspace_format::superblock::{MemberFlags, SetName};
use mdspace_format::{
    BitmapSuperblock, Features, Level, MetadataVersion, Role, Superblock, Timestamp, Uuid,
};

use crate::seeded::Random;

/// A superblock and the size of its device.
#[derive(Clone, Debug)]
pub(crate) struct Specimen {
    pub(crate) superblock: Superblock,
    pub(crate) device_sectors: u64,
}

impl Specimen {
    /// Slot 1 of a RAID6 of four 1 GiB members with a bitmap.
    pub(crate) fn raid6(version: MetadataVersion) -> Specimen {
        let request = Request {
            version,
            level: Level::Raid6,
            layout: 2,
            chunk_sectors: 1024,
            raid_disks: 4,
            size_sectors: None,
            data_offset_sectors: None,
            bitmap: BitmapRequest::Internal { chunk_bytes: None },
        };
        Specimen::of(&request, 1 << 21, 1, [1; 16])
    }

    /// Any array that could be made, in any state that it could get into.
    pub(crate) fn random(random: &mut Random) -> Specimen {
        let level = random.pick(&Level::ALL);
        let chunk_sectors = if level.has_chunks() { 8 << random.below(0..10) } else { 0 };
        let bitmap = BitmapRequest::Internal { chunk_bytes: None };
        let request = Request {
            version: random.pick(&MetadataVersion::PROBE_ORDER),
            level,
            layout: random.pick(&[0x102, 0x201, 0x10201]),
            chunk_sectors,
            raid_disks: random.below(4..30) as u32,
            size_sectors: None,
            data_offset_sectors: None,
            bitmap: random.pick(&[BitmapRequest::None, bitmap]),
        };
        let device_sectors = (1 << random.below(18..34)) + random.below(0..5000);
        let mut specimen =
            Specimen::of(&request, device_sectors, random.below(0..4), random.bytes());
        specimen.live(random);
        specimen
    }

    /// The device's superblock where it lies.
    pub(crate) fn parse(&self) -> Result<Superblock, mdspace_format::SuperblockError> {
        let superblock = &self.superblock;
        Superblock::parse(&superblock.encode(), superblock.place, self.device_sectors)
    }

    fn of(request: &Request, device_sectors: u64, slot: u64, set_uuid: [u8; 16]) -> Specimen {
        let placement = ArrayPlacement::new(request, &[device_sectors]).unwrap();
        let array = NewArray {
            set_uuid: Uuid(set_uuid),
            set_name: SetName::with_host(Some("host"), "home").unwrap(),
            ctime: Timestamp::from_seconds(1_700_000_000),
            level: request.level,
            layout: request.layout,
            chunk_sectors: request.chunk_sectors,
            raid_disks: request.raid_disks,
            in_sync: true,
            write_behind: 0,
        };
        let member = |number: u32| NewMember {
            device_sectors,
            device_uuid: Uuid([number as u8 + 1; 16]),
            dev_number: number,
            role: Role::Slot(number as u16),
            flags: MemberFlags::default(),
        };
        let members: Vec<_> = (0..request.raid_disks).map(member).collect();
        let superblock = array.superblocks(&placement, &members).unwrap()[slot as usize].clone();
        Specimen { superblock, device_sectors }
    }

    /// What happens to an array that is used.
    fn live(&mut self, random: &mut Random) {
        let superblock = &mut self.superblock;
        superblock.events = random.next() >> 2;
        superblock.utime = Timestamp::from_raw(random.next());
        superblock.device_uuid = Uuid(random.bytes());
        superblock.corrected_reads = random.next() as u32;
        superblock.flags = MemberFlags(random.below(0..4) as u8);
        superblock.logical_block_size_bytes = random.pick(&[0, 512, 4096]);
        if random.one_in(2) {
            superblock.resync_offset_sectors = 0;
        }
        if random.one_in(3) {
            superblock.recovery_offset_sectors =
                Some(random.below(0..superblock.data_size_sectors));
            superblock.features |= Features::RECOVERY_OFFSET;
        }
        if random.one_in(4) && superblock.bad_block_log.is_some() {
            superblock.features |= Features::BAD_BLOCKS;
        }
        for number in 0..superblock.roles.len() {
            if random.one_in(8) {
                superblock.roles[number] = random.pick(&[Role::Spare, Role::Faulty, Role::Slot(3)]);
            }
        }
    }
}

/// A bitmap that covers `sync_size_sectors` in chunks of 4 KiB.
pub(crate) fn bitmap(sync_size_sectors: u64) -> BitmapSuperblock {
    BitmapSuperblock {
        version: BitmapVersion::LittleEndian,
        uuid: Uuid([3; 16]),
        events: 17,
        events_cleared: 12,
        sync_size_sectors,
        state: BitmapState(0),
        chunk_bytes: 4096,
        daemon_sleep_seconds: 5,
        write_behind: 256,
        sectors_reserved: 0,
        padding: [0; 188],
    }
}

//! How the words of `bench run` become members, an array on them, and settings.

use mdspace_engine::array::settings::{SettingError, StartSettings};
use mdspace_engine::backend::{MemberId, MemberInfo};
use mdspace_engine::create::{self, Creation, NewDevice};
use mdspace_engine::lane::LaneId;
use mdspace_engine::status::ArrayStatus;
use mdspace_format::placement::BitmapRequest;
use mdspace_format::superblock::{MemberFlags, SetName};
use mdspace_format::{Level, MetadataVersion, Uuid, layout};
use mdspace_io::{Lanes, MemberTable};

use crate::args::{BenchRunArgs, MemberSpec};
use crate::bench::failed;
use crate::bench::measure::RawMember;
use crate::failure::Failure;

type Setting = (String, String);

/// What is fixed when the array starts, and what is set after.
pub(super) fn split_settings(all: &[Setting]) -> Result<(StartSettings, Vec<&Setting>), Failure> {
    let mut start = StartSettings::default();
    let mut live = Vec::new();
    for setting @ (key, value) in all {
        match start.set(key, value) {
            Ok(()) => {}
            Err(SettingError::Unknown { .. }) => live.push(setting),
            Err(error) => return Err(failed("set a key", error)),
        }
    }
    Ok((start, live))
}

pub(super) fn create_array(
    args: &BenchRunArgs,
    lanes: &Lanes,
    devices: &[(MemberId, MemberInfo)],
) -> Result<(), Failure> {
    let layout = match (&args.layout, args.level) {
        (Some(word), level) => layout::number(level, word)
            .ok_or_else(|| failed("create the array", "the level has no such layout"))?,
        (None, Level::Raid5 | Level::Raid6) => 2,
        (None, Level::Raid10) => 0x102,
        (None, Level::Raid0) => 1,
        (None, _) => 0,
    };
    let bitmap = match args.bitmap.as_str() {
        "none" => BitmapRequest::None,
        _ => BitmapRequest::Internal { chunk_bytes: None },
    };
    let creation = Creation {
        name: SetName::new("bench").map_err(|error| failed("create the array", error))?,
        uuid: Uuid(*b"mdspace bench..."),
        version: MetadataVersion::V1_2,
        level: args.level,
        layout,
        chunk_sectors: if args.level.has_chunks() { args.chunk.sectors() as u32 } else { 0 },
        raid_disks: devices.len() as u16,
        size_sectors: None,
        data_offset_sectors: None,
        bitmap,
        assume_clean: true,
        force: false,
        write_behind: 0,
    };
    let slots = devices.iter().map(|(id, info)| {
        Some(NewDevice { id: *id, info: info.clone(), flags: MemberFlags::default() })
    });
    let slots: Vec<_> = slots.collect();
    lanes
        .call(LaneId(0), async move |lane, _| {
            let random = || {
                let words = [lane.backend().random(), lane.backend().random()];
                Uuid(std::array::from_fn(|at| words[at / 8].to_le_bytes()[at % 8]))
            };
            let plan = create::plan(&creation, slots, lane.backend().unix_time_s(), random)?;
            create::write(&lane, &plan).await
        })
        .map_err(|error| failed("create the array", error))
}

pub(super) fn member_names(args: &BenchRunArgs) -> Result<Vec<String>, Failure> {
    match args.member.as_slice() {
        [one] if one.starts_with("ram:") || one.starts_with("null:") => {
            Ok(vec![one.clone(); args.raid_devices])
        }
        names if names.len() == args.raid_devices => Ok(names.to_vec()),
        names => {
            let why = format!("{} members for {} slots", names.len(), args.raid_devices);
            Err(failed("set up the members", why))
        }
    }
}

/// Refuses a member that is another one than was looked at before.
pub(in crate::bench) fn refuse_other(
    args: &BenchRunArgs,
    members: &MemberTable,
    name: &str,
    id: MemberId,
) -> Result<(), Failure> {
    let known = MemberSpec::absolute_of(name)?;
    args.probed.refuse_other(members, &known, id, "cannot measure")
}

pub(super) fn raw_members(
    status: &ArrayStatus,
    devices: &[(MemberId, MemberInfo)],
) -> Vec<RawMember> {
    let by_name = status.members.iter().zip(devices);
    let members = by_name.map(|(member, (id, info))| RawMember {
        id: *id,
        first_sector: member.data_offset_sectors,
        sectors: info.sectors - member.data_offset_sectors,
    });
    members.collect()
}

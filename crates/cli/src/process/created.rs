//! `create`: from the words of the command line to superblocks on the members.

use mdspace_engine::create::{self, CreateError, Creation, NewDevice};
use mdspace_engine::lane::{Lane, LaneId};
use mdspace_format::placement::BitmapRequest;
use mdspace_format::superblock::{MemberFlags, SetName};
use mdspace_format::{Level, Uuid};
use mdspace_io::{Lanes, OpenMode};

use super::array::{Devices, open_all};
use super::members::OpenMembers;
use crate::args::create::{Bitmap, CreateArgs, Policy, SizeOrMax};
use crate::args::member::{MemberOrMissing, MemberSpec};
use crate::args::size::Size;
use crate::failure::Failure;
use crate::layout_words;
use crate::output::printable;

/// Chunk where the user names none, as mdadm: 512 KiB.
const DEFAULT_CHUNK_SECTORS: u64 = 1024;

/// Opens the members and writes the array to them; returns those that are there.
pub(super) fn write(
    args: &CreateArgs,
    members: &OpenMembers,
    lanes: &Lanes,
    what: &str,
) -> Result<Devices, Failure> {
    let creation = creation(args, what)?;
    let names: Vec<Option<String>> = args
        .members
        .iter()
        .map(|place| match place {
            MemberOrMissing::Member(member) => member.absolute().map(Some),
            MemberOrMissing::Missing => Ok(None),
        })
        .collect::<Result<_, _>>()?;
    let given: Vec<String> = names.iter().flatten().cloned().collect();
    let opened = open_all(&given, OpenMode::RUN, members, &args.probed, what)?;
    let named = |members: &[MemberSpec]| {
        members.iter().map(MemberSpec::absolute).collect::<Result<Vec<String>, Failure>>()
    };
    let (write_mostly, failfast) = (named(&args.write_mostly)?, named(&args.failfast)?);
    let mut devices = opened.iter().map(|(id, info)| NewDevice {
        id: *id,
        info: info.clone(),
        flags: flags(&info.name, &write_mostly, &failfast),
    });
    let places: Vec<Option<NewDevice>> =
        names.iter().map(|name| name.as_ref().and_then(|_| devices.next())).collect();
    lanes
        .call(LaneId(0), async move |lane, _| make(&lane, creation, places).await)
        .map_err(|error| Failure::new(what, &error, cure(&error)))?;
    Ok(opened)
}

async fn make(
    lane: &Lane,
    mut creation: Creation,
    places: Vec<Option<NewDevice>>,
) -> Result<(), CreateError> {
    if creation.uuid == Uuid::NIL {
        creation.uuid = random_uuid(lane);
    }
    let now_s = lane.backend().unix_time_s();
    let plan = create::plan(&creation, places, now_s, || random_uuid(lane))?;
    create::write(lane, &plan).await
}

fn random_uuid(lane: &Lane) -> Uuid {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&lane.backend().random().to_le_bytes());
    bytes[8..].copy_from_slice(&lane.backend().random().to_le_bytes());
    Uuid(bytes)
}

fn flags(name: &str, write_mostly: &[String], failfast: &[String]) -> MemberFlags {
    let flag = |members: &[String], bit| {
        if members.iter().any(|member| member == name) { bit } else { 0 }
    };
    MemberFlags(
        flag(write_mostly, MemberFlags::WRITE_MOSTLY) | flag(failfast, MemberFlags::FAIL_FAST),
    )
}

fn creation(args: &CreateArgs, what: &str) -> Result<Creation, Failure> {
    let invalid = |why: &str, cure: &str| Failure::new(what, why, cure).with_exit_code(2);
    let spares = args.spare_devices as usize;
    if args.members.len() != usize::from(args.raid_devices) + spares {
        let given = args.members.len();
        let why = format!("{given} members for {} slots and {spares} spares", args.raid_devices);
        return Err(invalid(&why, "give one member or the word missing for each"));
    }
    let chunk_sectors = chunk_sectors(args);
    Ok(Creation {
        name: set_name(args).map_err(|why| invalid(&why, "choose another name"))?,
        uuid: args.uuid.unwrap_or(Uuid::NIL),
        version: args.metadata,
        level: args.level,
        layout: layout(args).ok_or_else(|| {
            invalid("the level has no such layout", "see `mdspace help create` for the layouts")
        })?,
        chunk_sectors,
        raid_disks: args.raid_devices,
        size_sectors: size_sectors(args, chunk_sectors),
        data_offset_sectors: args.data_offset.map(Size::sectors),
        bitmap: bitmap(args).map_err(|why| invalid(why, "give one of the two"))?,
        assume_clean: args.assume_clean,
        force: args.force,
        write_behind: args.write_behind.unwrap_or(0).into(),
    })
}

fn chunk_sectors(args: &CreateArgs) -> u32 {
    let asked = args.chunk.map(Size::sectors);
    let sectors = match args.level.has_chunks() {
        true => asked.unwrap_or(DEFAULT_CHUNK_SECTORS),
        false => 0,
    };
    u32::try_from(sectors).unwrap_or(u32::MAX)
}

/// In whole chunks, as mdadm: what is left over is not used.
fn size_sectors(args: &CreateArgs, chunk_sectors: u32) -> Option<u64> {
    match args.size {
        Some(SizeOrMax::Size(size)) => {
            Some(size.sectors() - size.sectors() % u64::from(chunk_sectors.max(1)))
        }
        Some(SizeOrMax::Max) | None => None,
    }
}

fn layout(args: &CreateArgs) -> Option<u32> {
    match (&args.layout, args.level) {
        (Some(word), level) => layout_words::layout_number(level, word),
        (None, Level::Raid0) => Some(1),
        (None, Level::Raid5 | Level::Raid6) => layout_words::layout_number(args.level, "default"),
        (None, Level::Raid10) => layout_words::layout_number(Level::Raid10, "n2"),
        (None, _) => Some(0),
    }
}

fn bitmap(args: &CreateArgs) -> Result<BitmapRequest, &'static str> {
    let wanted = match (args.bitmap, args.consistency_policy) {
        (Some(Bitmap::Internal), Some(Policy::Resync)) => {
            return Err("a bitmap and the policy resync exclude each other");
        }
        (Some(Bitmap::None), Some(Policy::Bitmap)) => {
            return Err("the policy bitmap needs a bitmap");
        }
        (Some(Bitmap::None), _) | (_, Some(Policy::Resync)) => false,
        _ => args.level.is_redundant(),
    };
    let chunk_bytes = args.bitmap_chunk.map(|size| u32::try_from(size.bytes).unwrap_or(u32::MAX));
    Ok(if wanted { BitmapRequest::Internal { chunk_bytes } } else { BitmapRequest::None })
}

fn set_name(args: &CreateArgs) -> Result<SetName, String> {
    let system = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let host = args.homehost.clone().unwrap_or(system);
    // mdadm's word for "no host".
    let host = Some(host.as_str()).filter(|host| !["", "any", "<none>"].contains(host));
    let name = args.set_name.as_deref().unwrap_or(args.name.as_str());
    if host.into_iter().chain([name]).any(|word| printable(word) != word) {
        return Err("it has characters that would steer a terminal or break a line".into());
    }
    SetName::with_host(host, name).map_err(|error| error.to_string())
}

fn cure(error: &CreateError) -> &'static str {
    match error {
        CreateError::TooManyMissing { .. } => "give more members; fewer slots may stay empty",
        CreateError::DirtyDegraded => "leave --force out, or give all members",
        CreateError::Placement(_) => "give larger members, or a smaller --size or --chunk",
        CreateError::WriteBehind(_) => {
            "write-behind is for --level=1 with a bitmap, and --write-mostly=MEMBER says on whom"
        }
        CreateError::Io { .. } => "look at the device and the kernel's log",
        _ => "see `mdspace help create`",
    }
}

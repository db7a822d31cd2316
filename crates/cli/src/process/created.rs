//! `create`: from the words of the command line to superblocks on the members.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use mdspace_engine::backend::{MemberId, MemberInfo};
use mdspace_engine::create::{self, CreateError, Creation, DEFAULT_CHUNK_SECTORS, NewDevice};
use mdspace_engine::geometry::{Geometry, GeometryError, Shape};
use mdspace_engine::lane::LaneId;
use mdspace_format::placement::{BitmapRequest, PlacementError};
use mdspace_format::superblock::{MemberFlags, SetName};
use mdspace_format::{Level, Uuid, layout};
use mdspace_io::{Lanes, OpenMode, name_of_path};

use super::array::{Devices, open_all};
use super::fronts::Prepared;
use super::members::OpenMembers;
use crate::args::create::{Bitmap, CreateArgs, Policy, SizeOrMax};
use crate::args::member::{MemberOrMissing, MemberSpec};
use crate::args::size::{Size, short};
use crate::failure::{Code, Failure};
use crate::member_probe::{Purpose, asked_of, is_same_place};
use crate::output::printable;

/// What a member that is only pretended has beside what is asked for: 128 MiB.
const MEMBER_SECTORS_PRETENDED: u64 = 1 << 18;

/// Opens the members and writes the array to them; returns those that are there.
pub(super) fn write(
    args: &CreateArgs,
    members: &OpenMembers,
    lanes: &Lanes,
    purpose: &Purpose,
) -> Result<Devices, Failure> {
    let what = purpose.what();
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
    let opened = open_all(&given, OpenMode::RUN, members, &args.probed, purpose)?;
    let mut devices = opened.iter();
    let places = args.members.iter().map(|place| {
        let member = place.member()?;
        let (id, info) = devices.next()?;
        Some(NewDevice { id: *id, info: info.clone(), flags: flags(member, args) })
    });
    let places: Vec<Option<NewDevice>> = places.collect();
    lanes
        .call(LaneId(0), async move |lane, _| create::make(&lane, creation, places).await)
        .map_err(|error| Failure::new(what, &error, cure(&error)))?;
    Ok(opened)
}

fn flags(member: &MemberSpec, args: &CreateArgs) -> MemberFlags {
    let flag = |named: &[MemberSpec], bit| {
        if named.iter().any(|named| is_same(named, member)) { bit } else { 0 }
    };
    MemberFlags(
        flag(&args.write_mostly, MemberFlags::WRITE_MOSTLY)
            | flag(&args.failfast, MemberFlags::FAIL_FAST),
    )
}

/// Whether two words mean one member: links lead to it too.
fn is_same(one: &MemberSpec, other: &MemberSpec) -> bool {
    match (one, other) {
        (MemberSpec::Path(one), MemberSpec::Path(other)) => is_same_place(one, other),
        _ => one == other,
    }
}

/// Refuses words that no members could make right, options that would do nothing, and fronts that have no place.
pub(crate) fn check(args: &CreateArgs, what: &str) -> Result<(), Failure> {
    let creation = creation(args, what)?;
    args.serving.serve.iter().try_for_each(Prepared::check)?;
    let members = args.members.iter().filter_map(MemberOrMissing::member);
    let useless = useless_option(args)
        .or_else(|| named_twice(args))
        .or_else(|| args.forgetting.refuses(members));
    let impossible =
        || impossible_shape(&creation).or_else(|| impossible_with_any_members(args, &creation));
    match useless.or_else(impossible) {
        Some((why, cure)) => Err(Failure::new(what, why, cure).with_code(Code::Usage)),
        None => Ok(()),
    }
}

/// Why, and what to do about it.
type Wrong = (String, &'static str);

fn useless_option(args: &CreateArgs) -> Option<Wrong> {
    let (level, is_mirror) = (args.level, matches!(args.level, Level::Raid1 | Level::Raid10));
    for (option, named) in [("--write-mostly", &args.write_mostly), ("--failfast", &args.failfast)]
    {
        if !named.is_empty() && !is_mirror {
            return Some((
                format!("{option} is for mirrors, and {level} has none"),
                "leave it out",
            ));
        }
        let members = || args.members.iter().filter_map(MemberOrMissing::member);
        if let Some(other) =
            named.iter().find(|named| !members().any(|member| is_same(named, member)))
        {
            return Some((format!("{option}={other} is no member"), "name one of the members"));
        }
    }
    if level.is_redundant() {
        return None;
    }
    let without = |option: &str| {
        Some((format!("{option}: {level} has no redundancy to keep right"), "leave it out"))
    };
    match (args.bitmap, args.consistency_policy) {
        (Some(Bitmap::Internal), _) => without("--bitmap=internal"),
        (_, Some(_)) => without("--consistency-policy"),
        _ if args.bitmap_chunk.is_some() => without("--bitmap-chunk"),
        _ => None,
    }
}

fn named_twice(args: &CreateArgs) -> Option<Wrong> {
    let paths = args.members.iter().filter_map(|place| match place.member() {
        Some(MemberSpec::Path(path)) => Some(path),
        _ => None,
    });
    let mut known = BTreeSet::new();
    // Each is asked once.
    let place = |path: &Path| asked_of(path, |path| fs::canonicalize(path).ok()).flatten();
    let twice = paths.into_iter().find(|path| {
        let place = place(path).unwrap_or_else(|| (*path).clone());
        !known.insert(place)
    })?;
    Some((format!("{} is named twice", name_of_path(twice)), "name every member once"))
}

/// What is wrong whatever size the members have.
fn impossible_shape(creation: &Creation) -> Option<Wrong> {
    let sectors = u64::from(creation.chunk_sectors.max(1)) << 10;
    let shape = Shape {
        level: creation.level,
        layout: creation.layout,
        raid_disks: creation.raid_disks,
        chunk_sectors: creation.chunk_sectors,
        member_sectors: sectors,
        member_sizes: vec![sectors; creation.raid_disks.into()],
    };
    match Geometry::new(&shape).err()? {
        GeometryError::Chunk { level, chunk_sectors, .. } => {
            let chunk = short(u64::from(chunk_sectors) * 512);
            Some((
                format!("{level} has no chunks of {chunk}"),
                "give a power of two of at least 4K",
            ))
        }
        error @ (GeometryError::TooFewDisks { .. }
        | GeometryError::TooManyDisks { .. }
        | GeometryError::UnknownLayout { .. }) => {
            Some((error.to_string(), "give another --level, --layout or --raid-devices"))
        }
        _ => None,
    }
}

/// What is wrong also with members that have room for all that is asked: the array is planned on such ones.
fn impossible_with_any_members(args: &CreateArgs, creation: &Creation) -> Option<Wrong> {
    let room = [
        MEMBER_SECTORS_PRETENDED,
        u64::from(creation.chunk_sectors) << 10,
        creation.size_sectors.unwrap_or(0),
        creation.data_offset_sectors.unwrap_or(0),
    ];
    let info = MemberInfo {
        name: String::new(),
        sectors: room.into_iter().fold(0, u64::saturating_add),
        logical_block_bytes: 512,
        rotational: false,
        discard_zeroes: false,
        is_sparse: false,
    };
    let places = args.members.iter().map(|place| {
        let flags = flags(place.member()?, args);
        Some(NewDevice { id: MemberId { index: 0, generation: 0 }, info: info.clone(), flags })
    });
    let error = create::plan(creation, places.collect(), 0, || Uuid::NIL).err()?;
    match &error {
        CreateError::Placement(PlacementError::BitmapChunk { chunk_bytes, .. })
            if args.bitmap_chunk.is_none_or(|asked| asked.bytes != *chunk_bytes) =>
        {
            None
        }
        CreateError::Placement(
            PlacementError::TooSmall { .. } | PlacementError::TooLarge { .. },
        ) => None,
        _ => Some((error.to_string(), cure(&error))),
    }
}

fn creation(args: &CreateArgs, what: &str) -> Result<Creation, Failure> {
    let invalid = |why: &str, cure: &str| Failure::new(what, why, cure).with_code(Code::Usage);
    let spares = args.spare_devices as usize;
    if args.members.len() != usize::from(args.raid_devices) + spares {
        let given = args.members.len();
        let counted = |count: usize, noun: &str| match count {
            1 => format!("1 {noun}"),
            _ => format!("{count} {noun}s"),
        };
        let slots = counted(args.raid_devices.into(), "slot");
        let why =
            format!("{} for {slots} and {}", counted(given, "member"), counted(spares, "spare"));
        return Err(invalid(&why, "give one member or the word missing for each"));
    }
    let chunk_sectors = chunk_sectors(args);
    Ok(Creation {
        name: set_name(args).map_err(|why| invalid(&why, "choose another name"))?,
        uuid: args.uuid.unwrap_or(Uuid::NIL),
        version: args.metadata,
        level: args.level,
        layout: layout_number(args).ok_or_else(|| {
            let word = args.layout.as_deref().unwrap_or_default();
            let why = format!("{} has no layout {word:?}", args.level);
            invalid(&why, layout::choices(args.level))
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
        true => asked.unwrap_or(DEFAULT_CHUNK_SECTORS.into()),
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

fn layout_number(args: &CreateArgs) -> Option<u32> {
    match &args.layout {
        Some(word) => layout::number(args.level, word),
        None => Some(layout::default_number(args.level)),
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
        CreateError::Placement(PlacementError::NoMembers) => "give at least one member",
        CreateError::Placement(PlacementError::DataOffset { .. }) => {
            "give another --data-offset, or leave it out"
        }
        CreateError::Placement(PlacementError::BitmapChunk { .. }) => {
            "give another --bitmap-chunk, or leave it out"
        }
        CreateError::MissingSpare => "leave out one `missing`, and lower --spare-devices",
        CreateError::NoUseForSpares => "leave --spare-devices out",
        CreateError::Geometry(_) => "give another --level, --layout or --raid-devices",
        CreateError::Placement(_) => "give larger members, or a smaller --size or --chunk",
        CreateError::WriteBehind(_) => {
            "write-behind is for --level=1 with a bitmap, and --write-mostly=MEMBER says on whom"
        }
        CreateError::Blocks { .. } => {
            "give a --data-offset and a --chunk of whole blocks, or members whose blocks are alike"
        }
        CreateError::Io { .. } => "look at the device and the kernel's log",
        _ => "see `mdspace help create`",
    }
}

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use mdspace::{Array, Error, Level, Member, MetadataVersion, OpenError, Refusal, Uuid, layout};

use crate::bed::{MEMBER_BYTES, create, files, is_clean, pattern, read, until_in_sync};

#[test]
fn an_array_is_stopped_and_assembled_again_in_any_order() {
    let mut files = files(4);
    let array = create(Level::Raid6, &files);
    let bytes = pattern(1, 1 << 20);
    array.write_at(&bytes, 8192).unwrap();
    array.stop().unwrap();
    files.paths.reverse();
    let array = Array::assemble(&files.paths).lanes(2).start().unwrap();
    assert!(read(&array, 8192, bytes.len()) == bytes);
    assert!(array.left_out().is_empty());
    array.stop().unwrap();
}

#[test]
fn what_was_asked_for_is_what_the_array_is() {
    let files = files(5);
    let uuid = Uuid([7; 16]);
    let array = Array::create("asked", Level::Raid10)
        .members(&files.paths)
        .spares(1)
        .layout("f2")
        .chunk_bytes(64 << 10)
        .member_bytes(8 << 20)
        .metadata(MetadataVersion::V1_0)
        .uuid(uuid)
        .bitmap(false)
        .assume_clean(true)
        .start()
        .unwrap();
    let status = array.status().unwrap();
    assert_eq!((status.name.as_str(), status.uuid), ("asked", uuid));
    assert_eq!((status.level, status.raid_disks), (Level::Raid10, 4));
    assert_eq!(layout::word(status.level, status.layout).as_deref(), Some("far=2"));
    assert_eq!((status.chunk_sectors, status.member_sectors), (128, 16384));
    assert_eq!((status.metadata, status.bitmap), (MetadataVersion::V1_0, None));
    assert_eq!(array.size_bytes(), 16 << 20);
    array.stop().unwrap();
}

#[test]
fn a_first_resync_runs_unless_members_are_said_to_be_clean() {
    let files = files(3);
    let array = Array::create("new", Level::Raid5).members(&files.paths).start().unwrap();
    assert_eq!(array.status().unwrap().degraded(), 1);
    array.write_at(&[5; 4096], 0).unwrap();
    until_in_sync(&array);
    array.stop().unwrap();
}

#[test]
fn a_slot_may_stay_empty_until_its_member_comes() {
    let files = files(3);
    let places = [Member::path(&files.paths[0]), Member::missing(), Member::path(&files.paths[1])];
    let array = Array::create("later", Level::Raid5).members(places).start().unwrap();
    array.write_at(&[9; 8192], 0).unwrap();
    array.add(&files.paths[2]).unwrap();
    until_in_sync(&array);
    assert!(matches!(array.add(Member::missing()), Err(Error::Asked { .. })));
    array.stop().unwrap();
}

/// Each with what the message tells to do.
#[test]
fn what_no_array_can_be_is_refused_before_a_member_is_touched() {
    let files = files(3);
    let of = |level| Array::create("no", level).members(&files.paths);
    for (wrong, cure) in [
        (of(Level::Raid5).layout("n2"), "left-symmetric (the default)"),
        (of(Level::Raid1).layout("n2"), "leave the layout out"),
        (of(Level::Raid1).chunk_bytes(4096), "leave chunk_bytes out"),
        (of(Level::Raid5).chunk_bytes(100), "power of two"),
        (of(Level::Raid5).chunk_bytes(0), "power of two"),
        (of(Level::Raid5).chunk_bytes(3 * 4096), "another level, layout, chunk"),
        (of(Level::Raid5).chunk_bytes(1 << 60), "power of two"),
        (of(Level::Raid5).member_bytes(1 << 60), "larger members"),
        (of(Level::Raid0).spares(1), "leave spares out"),
        (of(Level::Raid5).spares(4), "give more members"),
        (of(Level::Raid6), "another level, layout, chunk, or number"),
        (of(Level::Raid0).bitmap(true), "leave the bitmap out"),
        (of(Level::Raid5).lanes(0), "one for each CPU"),
        (of(Level::Raid5).lanes(1 << 20), "one for each CPU"),
        (of(Level::Raid5).member("/dev/null/x"), "cannot be opened"),
        (of(Level::Raid5).member("/mistyped"), "check the path"),
        (of(Level::Raid5).member(&files.paths[0]), "in use by"),
        (of(Level::Raid5).member(Member::memory(100)), "512-byte sectors"),
        (of(Level::Raid5).member(Member::memory(4096)), "larger members"),
        (Array::create("x\ny", Level::Raid5).members(&files.paths), "another name"),
        (Array::create("x".repeat(40), Level::Raid5).members(&files.paths), "another name"),
        (Array::create("none", Level::Raid5), "give more members"),
    ] {
        let asked = format!("{wrong:?}");
        let error = wrong.start().unwrap_err().to_string();
        assert!(error.contains(cure), "{asked}: {error}");
    }
    for path in &files.paths {
        assert!(fs::read(path).unwrap().iter().all(|byte| *byte == 0));
    }
    // Nothing of it is held either.
    create(Level::Raid5, &files).stop().unwrap();
}

#[test]
fn a_member_that_is_not_empty_is_refused_unless_it_may_be_overwritten() {
    let files = files(3);
    for offset in [0, 4096, (1 << 20) - 1, MEMBER_BYTES - (1 << 20), MEMBER_BYTES - 1] {
        let file = File::options().write(true).open(&files.paths[1]).unwrap();
        file.write_all_at(&[1], offset).unwrap();
        let error = Array::create("full", Level::Raid5).members(&files.paths).start().unwrap_err();
        let Error::NotEmpty { member, offset_bytes } = &error else { panic!("{error}") };
        assert_eq!((offset_bytes, member.as_str()), (&offset, files.paths[1].to_str().unwrap()));
        assert!(fs::read(&files.paths[0]).unwrap().iter().all(|byte| *byte == 0));
        file.write_all_at(&[0], offset).unwrap();
    }
    create(Level::Raid5, &files).stop().unwrap();
    let again = || Array::create("again", Level::Raid1).members(&files.paths);
    assert!(matches!(again().start(), Err(Error::NotEmpty { .. })));
    again().overwrite_members(true).start().unwrap().stop().unwrap();
}

#[test]
fn members_that_another_array_has_are_refused_and_their_user_is_named() {
    let files = files(3);
    let array = create(Level::Raid5, &files);
    let error = Array::assemble(&files.paths).allow_degraded(true).start().unwrap_err();
    assert!(matches!(error, Error::Open(OpenError::InUse { .. })), "{error}");
    let error = Array::create("other", Level::Raid1).members(&files.paths).start().unwrap_err();
    assert!(matches!(error, Error::Open(OpenError::InUse { .. })), "{error}");
    array.write_at(&[1; 512], 0).unwrap();
    array.stop().unwrap();
}

#[test]
fn an_array_without_a_member_starts_when_that_is_allowed_as_far_as_the_level_bears_it() {
    let files = files(3);
    let array = create(Level::Raid5, &files);
    let bytes = pattern(3, 1 << 20);
    array.write_at(&bytes, 0).unwrap();
    array.stop().unwrap();
    fs::remove_file(&files.paths[2]).unwrap();
    // Named or not.
    for members in [&files.paths[..], &files.paths[..2]] {
        let error = Array::assemble(members).start().unwrap_err();
        assert!(matches!(error, Error::Open(_) | Error::Refused { .. }), "{error}");
        let array = Array::assemble(members).allow_degraded(true).read_only(true).start().unwrap();
        assert_eq!(array.left_out().len(), members.len() - 2);
        assert!(read(&array, 0, bytes.len()) == bytes);
        array.stop().unwrap();
    }
    let error = Array::assemble(&files.paths[1..]).allow_degraded(true).start().unwrap_err();
    let Error::Refused { refusal, left_out } = &error else { panic!("{error}") };
    assert!(matches!(refusal, Refusal::TooFew { present: 1, needed: 3 }), "{error}");
    assert_eq!(left_out.len(), 1);
    let nothing: [&str; 0] = [];
    assert!(Array::assemble(nothing).start().unwrap_err().to_string().contains("give members"));
}

#[test]
fn a_read_only_array_refuses_writes_and_changes_no_byte_of_its_members() {
    let files = files(3);
    create(Level::Raid5, &files).stop().unwrap();
    let before: Vec<Vec<u8>> = files.paths.iter().map(|path| fs::read(path).unwrap()).collect();
    let array = Array::assemble(&files.paths).read_only(true).start().unwrap();
    assert!(matches!(array.write_at(&[1; 512], 0), Err(Error::ReadOnly)));
    assert!(matches!(array.discard(0, 512), Err(Error::ReadOnly) | Ok(())));
    assert_eq!(read(&array, 0, 512), [0; 512]);
    array.flush().unwrap();
    array.stop().unwrap();
    let after: Vec<Vec<u8>> = files.paths.iter().map(|path| fs::read(path).unwrap()).collect();
    assert!(before == after);
    assert!(files.paths.iter().all(|path| is_clean(path)));
}

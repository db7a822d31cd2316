use mdspace::low::CommandError;
use mdspace::{Array, Error, Level};

use crate::bed::{create, files, pattern, read, until_in_sync};

fn name(path: &std::path::Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_member_fails_leaves_and_comes_back() {
    let files = files(4);
    let array = create(Level::Raid5, &files);
    let (gone, bytes) = (name(&files.paths[1]), pattern(1, 1 << 20));
    array.write_at(&bytes, 0).unwrap();
    assert!(matches!(array.remove(gone), Err(Error::Order(CommandError::Active))));
    array.fail(gone).unwrap();
    let second = array.fail(name(&files.paths[0])).unwrap_err();
    assert!(matches!(second, Error::Order(CommandError::Needed)), "{second}");
    array.remove(gone).unwrap();
    let newer = pattern(2, 1 << 20);
    array.write_at(&newer, 1 << 20).unwrap();
    assert!(matches!(array.fail(gone), Err(Error::Asked { .. })));
    // Its own superblock is no reason to refuse it.
    array.add(gone).unwrap();
    until_in_sync(&array);
    array.fail(name(&files.paths[3])).unwrap();
    assert!(read(&array, 0, bytes.len()) == bytes && read(&array, 1 << 20, newer.len()) == newer);
    array.stop().unwrap();
}

#[test]
fn what_holds_anything_else_or_is_in_use_is_not_added() {
    let (files, others) = (files(3), files(2));
    let (array, other) = (create(Level::Raid5, &files), create(Level::Raid1, &others));
    assert!(matches!(array.add(&others.paths[0]), Err(Error::Open(_))));
    other.stop().unwrap();
    assert!(matches!(array.add(&others.paths[0]), Err(Error::NotEmpty { .. })));
    // It is let go, and nothing was written to it.
    Array::assemble(&others.paths).start().unwrap().stop().unwrap();
    array.stop().unwrap();
    assert!(matches!(array.add(&others.paths[0]), Err(Error::Stopped)));
}

#[test]
fn settings_are_read_and_set_and_a_bad_one_is_refused() {
    let array = Array::in_memory(Level::Raid5, 3, 16 << 20).unwrap();
    array.set("stripe_cache_size", "512").unwrap();
    assert!(array.settings().contains(&("stripe_cache_size", "512".into())));
    assert!(matches!(array.set("stripe_cache_size", "much"), Err(Error::Setting(_))));
    assert!(matches!(array.set("nonsense", "1"), Err(Error::Setting(_))));
    array.stop().unwrap();
    assert!(matches!(array.set("stripe_cache_size", "512"), Err(Error::Stopped)));
}

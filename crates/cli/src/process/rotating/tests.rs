use super::*;

const ROTATION: Rotation = Rotation { at_bytes: 100, old_kept: 2 };

fn lines(file: &mut RotatingFile, count: usize) {
    (0..count).for_each(|_| file.write_all(&[b'x'; 40]).unwrap());
}

fn open(path: &Path) -> RotatingFile {
    RotatingFile::open(path.to_owned(), ROTATION, |_| Ok(())).unwrap()
}

#[test]
fn a_large_file_makes_way_and_the_oldest_goes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.log");
    let mut file = open(&path);
    lines(&mut file, 9);
    let length = |path: &Path| fs::metadata(path).map(|data| data.len()).ok();
    assert_eq!(length(&path), Some(40));
    assert_eq!([1, 2, 3].map(|number| length(&old(&path, number))), [Some(80), Some(80), None]);
}

#[test]
fn a_file_that_was_deleted_is_made_anew_and_still_rotates() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.log");
    let mut file = open(&path);
    lines(&mut file, 2);
    fs::remove_file(&path).unwrap();
    lines(&mut file, 1);
    assert_eq!(fs::metadata(&path).unwrap().len(), 40);
    lines(&mut file, 2);
    assert_eq!(fs::metadata(old(&path, 1)).unwrap().len(), 80);
}

#[test]
fn a_line_that_was_cut_off_spoils_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.log");
    fs::write(&path, "one\ntw").unwrap();
    open(&path).write_all(b"three\n").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "one\ntw\nthree\n");
}

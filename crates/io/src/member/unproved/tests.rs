use super::*;

const MEMBER: &str = "nbd+unix:///one?socket=/run/../server one.sock";

fn empty() -> (tempfile::TempDir, UnprovedWrites) {
    let folder = tempfile::tempdir().expect("a folder");
    let kept = UnprovedWrites::in_folder(folder.path().join("unproved"));
    (folder, kept)
}

/// What a later process finds there.
fn later(kept: &UnprovedWrites) -> UnprovedWrites {
    UnprovedWrites::in_folder(kept.folder().expect("it is there").to_owned())
}

fn one(range: Range<u64>) -> Vec<Range<u64>> {
    std::iter::once(range).collect()
}

/// A write that is sent now, and not answered.
fn sent(record: &Record, sectors: Range<u64>) -> Owed {
    Owed { sectors, sent: record.now() }
}

#[test]
fn what_is_kept_is_found_again_until_it_is_proved() {
    let (_folder, kept) = empty();
    assert_eq!(kept.of(MEMBER).unwrap(), []);
    let record = kept.begin(MEMBER, "place").unwrap();
    assert_eq!(later(&kept).of(MEMBER).unwrap(), [], "its process lives");
    let owed = [sent(&record, 8..16), sent(&record, 32..40)];
    record.end(&owed);
    let next = later(&kept);
    assert_eq!(next.of(MEMBER).unwrap(), [8..16, 32..40]);
    assert_eq!(next.of("nbd://127.0.0.1:1/other").unwrap(), []);
    next.forget(MEMBER);
    assert_eq!(later(&kept).of(MEMBER).unwrap(), []);
}

/// As where the place for records was another one when the process ran that left it.
#[test]
fn a_record_in_another_folder_counts_until_it_is_proved() {
    let (_folder, there) = empty();
    let record = there.begin(MEMBER, "place").unwrap();
    let owed = [sent(&record, 8..16)];
    record.end(&owed);
    let (_here, here) = empty();
    assert_eq!(here.of(MEMBER).unwrap(), []);
    let folders = [&there, &here].map(|kept| kept.folder().expect("it is there").to_owned());
    let both = here.and_in(folders.to_vec());
    assert_eq!(both.of(MEMBER).unwrap(), one(8..16));
    both.forget(MEMBER);
    assert_eq!(later(&there).of(MEMBER).unwrap(), []);
}

#[test]
fn a_member_that_closes_with_all_answers_leaves_nothing() {
    let (_folder, kept) = empty();
    kept.begin(MEMBER, "place").unwrap().end(&[]);
    assert_eq!(later(&kept).of(MEMBER).unwrap(), []);
    assert_eq!(fs::read_dir(kept.folder().unwrap()).unwrap().count(), 0);
}

#[test]
fn of_a_process_that_is_killed_everything_may_still_appear() {
    let (_folder, kept) = empty();
    // Its lock ends with it.
    drop(kept.begin(MEMBER, "place").unwrap());
    assert_eq!(later(&kept).of(MEMBER).unwrap(), whole());
    assert_eq!(later(&kept).of("nbd+unix:///two").unwrap(), []);
}

#[test]
fn a_record_is_found_by_where_a_name_leads() {
    let (folder, kept) = empty();
    let socket = folder.path().join("socket");
    let _server = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&socket, &link).unwrap();
    let name = |path: &Path, export| format!("nbd+unix:///{export}?socket={}", path.display());
    let place = place::of_export(&name(&socket, "a")).unwrap();
    drop(kept.begin(&name(&socket, "a"), &place).unwrap());
    let next = later(&kept);
    assert_eq!(next.of(&name(&link, "a")).unwrap(), whole());
    assert_eq!(next.of(&name(&link, "b")).unwrap(), []);
}

#[test]
fn ranges_that_cannot_be_read_count_as_the_whole_member() {
    let good = ranges_part(&one(8..16));
    assert_eq!(parse_ranges(&good), Some(std::iter::once(8..16).collect()));
    assert_eq!(parse_ranges(&[&good[..], b"0 9\n"].concat()), parse_ranges(&good));
    for cut in 0..good.len() {
        assert_eq!(parse_ranges(&good[..cut]), None);
        let mut wrong = good.clone();
        wrong[cut] ^= 1;
        assert_eq!(parse_ranges(&wrong), None, "{cut}");
    }
    let mut content = vec![0; RANGES_BYTES as usize];
    content.extend(b"name\nplace\n");
    assert_eq!(Left::parse(&content).unwrap().ranges, whole());
    assert_eq!(Left::parse(&content[..RANGES_BYTES as usize]), None);
}

#[test]
fn a_record_that_cannot_be_read_is_not_forgotten() {
    let (_folder, kept) = empty();
    drop(kept.begin(MEMBER, "place").unwrap());
    fs::write(kept.folder().unwrap().join("1-1"), "torn").unwrap();
    let error = later(&kept).of(MEMBER).unwrap_err().to_string();
    assert!(error.contains("1-1: this record"), "{error}");
}

#[test]
fn very_many_ranges_are_kept_as_one_and_have_their_room() {
    let many: Vec<_> = (1..2000).map(|at| at * 100..at * 100 + 8).collect();
    assert_eq!(parse_ranges(&ranges_part(&many)), Some(one(100..199_908)));
    let longest = vec![u64::MAX - 1..u64::MAX; RANGES_MAX];
    assert!(ranges_part(&longest).len() < RANGES_BYTES as usize);
}

#[test]
fn without_room_or_a_safe_place_no_record_is_begun() {
    let why = "other users may write to it";
    let error = UnprovedWrites::nowhere(why.into()).begin(MEMBER, "place").unwrap_err();
    assert_eq!(error.to_string(), why);
    assert!(UnprovedWrites::nowhere(why.into()).of(MEMBER).is_err());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(UnprovedWrites::in_folder(file.join("unproved")).begin(MEMBER, "place").is_err());
}

#[test]
fn a_fence_proves_what_was_sent_before_it_began_and_nothing_else() {
    let (_folder, kept) = empty();
    let record = kept.begin(MEMBER, "place").unwrap();
    let before = sent(&record, 0..8);
    let fence = kept.sent_until_now();
    let after = sent(&record, 8..16);
    kept.prove(MEMBER, fence);
    record.end(&[before, after]);
    assert_eq!(later(&kept).of(MEMBER).unwrap(), one(8..16));
    kept.prove(MEMBER, fence);
    assert_eq!(later(&kept).of(MEMBER).unwrap(), one(8..16), "it is the same fence");
    kept.forget(MEMBER);
    assert_eq!(later(&kept).of(MEMBER).unwrap(), []);
}

#[test]
fn a_fence_that_began_before_an_earlier_process_was_asked_about_proves_nothing_of_that() {
    let (_folder, kept) = empty();
    drop(kept.begin(MEMBER, "place").unwrap());
    let next = later(&kept);
    let fence = next.sent_until_now();
    assert_eq!(next.of(MEMBER).unwrap(), whole());
    next.prove(MEMBER, fence);
    assert_eq!(next.of(MEMBER).unwrap(), whole());
}

#[test]
fn what_was_sent_before_a_fence_is_proved_whenever_its_member_closes() {
    let (_folder, kept) = empty();
    let record = kept.begin(MEMBER, "place").unwrap();
    let owed = [sent(&record, 0..8)];
    kept.forget(MEMBER);
    record.end(&owed);
    assert_eq!(later(&kept).of(MEMBER).unwrap(), []);
}

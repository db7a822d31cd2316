use super::*;

const MEMBER: &str = "nbd+unix:///run/../server one.sock";

fn empty() -> (tempfile::TempDir, UnprovedWrites) {
    let folder = tempfile::tempdir().expect("a folder");
    let kept = UnprovedWrites::in_folder(folder.path().join("unproved"));
    (folder, kept)
}

#[test]
fn what_is_kept_is_found_again_until_it_is_proved() {
    let (_folder, kept) = empty();
    assert_eq!(kept.of(MEMBER), []);
    kept.keep(MEMBER, &[8..16, 32..40]).expect("kept");
    assert_eq!(kept.of(MEMBER), [8..16, 32..40]);
    assert_eq!(kept.of("nbd://other:10809"), []);
    kept.keep(MEMBER, &[]).expect("forgotten");
    kept.keep(MEMBER, &[]).expect("and once more");
    assert_eq!(kept.of(MEMBER), []);
}

#[test]
fn a_file_that_is_not_ours_counts_as_the_whole_member() {
    let (_folder, kept) = empty();
    kept.keep(MEMBER, std::slice::from_ref(&(8..16))).expect("kept");
    for text in ["8", "16 8\n", "x y\n", "8 16\nand more\n"] {
        fs::write(kept.file(MEMBER), text).expect("written");
        assert!(kept.of(MEMBER)[0].end > 1 << 50, "{text:?}");
    }
}

#[test]
fn very_many_ranges_are_kept_as_one() {
    let (_folder, kept) = empty();
    let many: Vec<_> = (1..2000).map(|at| at * 100..at * 100 + 8).collect();
    kept.keep(MEMBER, &many).expect("kept");
    assert_eq!(kept.of(MEMBER), std::slice::from_ref(&(100..199_908)));
}

#[test]
fn names_stay_in_the_folder_and_differ() {
    let (_folder, kept) = empty();
    for name in ["..", "../x", "/etc/passwd", &"long/".repeat(100)] {
        assert_eq!(kept.file(name).parent(), Some(&*kept.folder), "{name}");
    }
    assert_ne!(kept.file("a/b"), kept.file("a%2fb"));
}

use super::*;
use crate::report::examples;

fn text_of(report: Report) -> String {
    text(&[ServedReport::Array(Box::new(report))])
}

#[test]
fn a_clean_raid6_reads_as_in_proc_mdstat() {
    let expect = "\
Personalities : [raid0] [raid1] [raid4] [raid5] [raid6] [raid10] [multipath]
data : active raid6 m0[0] m1[1] m2[2] m3[3] m4[4] m5[5]
      409600 blocks super 1.2 level 6, 512k chunk, algorithm 2 [6/6] [UUUUUU]
      bitmap: 1/1 pages [4KB], 65536KB chunk

unused devices: <none>
";
    assert_eq!(text_of(examples::clean_raid6()), expect);
}

#[test]
fn a_rebuild_shows_its_bar_and_the_failed_member_its_flag() {
    let text = text_of(examples::rebuilding_raid6());
    assert!(text.contains(" m1[1](F) m6[6]\n"), "{text}");
    assert!(text.contains("[6/4] [U__UUU]"), "{text}");
    let bar =
        "[=====>...............]  recovery = 25.0% (25600/102400) finish=0.1min speed=12800K/sec";
    assert!(text.contains(bar), "{text}");
}

#[test]
fn raid10_and_raid1_have_their_own_shapes() {
    let mut array = examples::clean_raid6().array;
    array.level = "raid10".into();
    array.layout_number = 0x102;
    assert_eq!(shape(&array), " 512K chunks 2 near-copies [6/6] [UUUUUU]");
    array.layout_number = 0x1_0201;
    assert_eq!(shape(&array), " 512K chunks 2 offset-copies [6/6] [UUUUUU]");
    array.level = "raid1".into();
    assert_eq!(shape(&array), " [6/6] [UUUUUU]");
}

#[test]
fn a_rebuild_that_waits_for_space_says_where() {
    let text = text_of(examples::raid6_without_space());
    let expect = "[6/4] [U__UUU]\n      the rebuild waits for space below /none\n";
    assert!(text.contains(expect), "{text}");
}

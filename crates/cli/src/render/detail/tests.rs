use jiff::tz::TimeZone;

use super::*;
use crate::render::units::zoned_time;
use crate::report::examples;

fn utc_text(report: &Report) -> String {
    text_at(report, |seconds| zoned_time(seconds, TimeZone::UTC))
}

#[test]
fn a_rebuilding_raid6_reads_as_under_mdadm() {
    let expect = "\
data:
           Version : 1.2
     Creation Time : Fri Nov 20 12:00:00 2026
        Raid Level : raid6
        Array Size : 409600 (400.00 MiB 419.43 MB)
     Used Dev Size : 102400 (100.00 MiB 104.86 MB)
      Raid Devices : 6
     Total Devices : 6
       Persistence : Superblock is persistent

     Intent Bitmap : Internal

       Update Time : Fri Nov 20 12:01:00 2026
             State : active, degraded, recovering
    Active Devices : 4
   Working Devices : 5
    Failed Devices : 1
     Spare Devices : 1

            Layout : left-symmetric
        Chunk Size : 512K

Consistency Policy : bitmap

    Rebuild Status : 25% complete

              Name : host:data
              UUID : 01234567:89abcdef:01234567:89abcdef
            Events : 17

    Number   Major   Minor   RaidDevice State
       0       -        -        0      active sync   /none/m0
       6       -        -        1      spare rebuilding   /none/m6
       -       0        0        2      removed
       3       -        -        3      active sync   /none/m3
       4       -        -        4      active sync   /none/m4
       5       -        -        5      active sync   /none/m5

       1       -        -        -      faulty   /none/m1

         Served by : process 42, mdspace 1.2.3
          Front at : nbd:unix:/tmp/data.sock (0 clients)
               URI : nbd+unix:///?socket=/tmp/data.sock
";
    let text = utc_text(&examples::rebuilding_raid6());
    assert_eq!(text, expect, "\n{text}");
}

#[test]
fn the_state_line_names_what_ails_the_array() {
    let mut array = examples::clean_raid6().array;
    assert_eq!(state_line(&array), "clean");
    array.degraded = 3;
    array.failed = true;
    array.array_state = "broken".into();
    assert_eq!(state_line(&array), "broken, FAILED");
    array.sync.action = "check".into();
    array.failed = false;
    assert_eq!(state_line(&array), "broken, degraded, checking");
}

#[test]
fn what_a_check_could_not_do_is_listed() {
    let mut report = examples::clean_raid6();
    assert!(!utc_text(&report).contains("Not Done"));
    report.array.sync.last_action = "check".into();
    report.array.sync.skipped.ranges = 3;
    report.array.sync.skipped.sectors = 24;
    report.array.sync.skipped.first = vec![(8, 16), (64, 72)];
    let text = utc_text(&report);
    let expect = "          Not Done : by check: 3 ranges (24 sectors): 8-15, 64-71, ...\n";
    assert!(text.contains(expect), "{text}");
}

#[test]
fn a_mirrors_members_show_what_they_bear() {
    let text = utc_text(&examples::limping_raid1());
    let expect = "
      Write Behind : at most 256 writes, 3 under way
         Load of 0 : 90 % of reads, 184 us each; 0 pending
         Load of 1 : 10 % of reads, 7360 us each; 1 pending; LIMPING
";
    assert!(text.contains(expect), "{text}");
    assert!(!utc_text(&examples::clean_raid6()).contains("Load of"));
}

#[test]
fn a_rebuild_that_waits_for_space_says_where() {
    let text = utc_text(&examples::raid6_without_space());
    let expect = "          No Space : the rebuild waits for space below /none\n";
    assert!(text.contains(expect), "{text}");
    let rebuilt =
        "       6       -        -        1      spare rebuilding without space   /none/m6\n";
    assert!(text.contains(rebuilt), "{text}");
}

#[test]
fn one_client_is_no_clients() {
    let mut report = examples::clean_raid6();
    report.fronts[0].clients.push("process 7".into());
    assert!(utc_text(&report).contains("data.sock (1 client)\n"));
}

//! The tests of this folder must be able to fail: what they would have to notice is done on purpose.

use std::path::PathBuf;

use super::our_side::first_difference;
use crate::harness::{Images, MIB, Mdspace, Pattern, SECTOR, flip, path_text};

const MEMBER_BYTES: u64 = 6 * MIB;

fn create(mdspace: &Mdspace, options: &[&str], members: &[PathBuf]) {
    let serve = mdspace.serve("c");
    let fixed = ["create", "c", "--run", "--size=4M", "--data-offset=1M", &serve];
    let mut arguments = [&fixed, options].concat();
    arguments.extend(members.iter().map(|member| path_text(member)));
    mdspace.succeed(&arguments);
}

fn fill(mdspace: &Mdspace) -> Vec<u8> {
    let mut nbd = mdspace.connect("c");
    let data = Pattern { seed: 41 }.bytes(0, nbd.bytes / SECTOR as u64, 1);
    nbd.write(0, &data);
    nbd.flush();
    data
}

#[test]
fn our_check_counts_a_flipped_byte_on_every_redundant_level() {
    for level in ["1", "4", "5", "6", "10"] {
        let images = Images::new();
        let members = images.sparse("m", 4, MEMBER_BYTES);
        let mdspace = Mdspace::new();
        let level_option = format!("--level={level}");
        create(&mdspace, &[&level_option, "--raid-devices=4"], &members);
        fill(&mdspace);
        assert_eq!(mdspace.check("c"), 0, "level {level}");
        flip(&members[2], 3 * MIB + 5000);
        assert!(mdspace.check("c") > 0, "level {level}: a flipped byte must be counted");
        mdspace.succeed(&["stop", "c"]);
    }
}

#[test]
fn another_layout_over_the_same_members_reads_something_else() {
    let images = Images::new();
    let members = images.sparse("m", 4, MEMBER_BYTES);
    let mdspace = Mdspace::new();
    let shape = ["--level=5", "--raid-devices=4", "--chunk=64"];
    create(&mdspace, &[&shape[..], &["--layout=left-symmetric"]].concat(), &members);
    let data = fill(&mdspace);
    mdspace.settle("c");
    mdspace.succeed(&["stop", "c"]);
    for (layout, same) in [("left-symmetric", true), ("right-symmetric", false)] {
        let layout = format!("--layout={layout}");
        create(&mdspace, &[&shape[..], &[&layout, "--assume-clean", "--force"]].concat(), &members);
        let mut nbd = mdspace.connect("c");
        let found = nbd.read(0, nbd.bytes as u32);
        assert_eq!(first_difference(&found, &data).is_none(), same, "{layout}");
        drop(nbd);
        mdspace.succeed(&["stop", "c"]);
    }
}

//! Linux md and mdspace on the same members: what one writes the other reads, what one degrades the
//! other rebuilds, and `check` counts nothing on either side.
//!
//! Three boots serve all cases, and while a guest works mdspace does its part on the other half: md makes
//! its arrays while mdspace makes its own; md takes those over while mdspace takes over md's; then md
//! gets its own back, and mdspace reads all of them a last time.

mod behind;
mod cases;
mod controls;
mod histories;
mod intent;
mod kernel_side;
mod liars;
mod our_side;
mod refusing;
mod replacing;
mod returning;
mod states;
mod stress;

use std::collections::BTreeMap;
use std::fs;
use std::panic::resume_unwind;
use std::thread;

use crate::harness::{Guest, Images, MIB, Pattern, SECTOR};
use cases::CASES;
pub(crate) use cases::Case;
use our_side::Ours;

/// Members have room for 4 MiB of data, superblock and bitmap.
const MEMBER_BYTES: u64 = 6 * MIB;
/// The largest array: RAID0 over four whole members.
const ARRAY_BYTES_MAX: u64 = 24 * MIB;

#[test]
fn md_and_mdspace_take_over_each_others_arrays() {
    take_over_each_others(CASES);
}

/// md makes every array and mdspace takes it over, and the other way round; then once more back.
pub(crate) fn take_over_each_others(cases: &[Case]) {
    let images = Images::new();
    let fills: Vec<Vec<u8>> = (1..=3)
        .map(|version| {
            let fill = Pattern { seed: 5 }.bytes(0, ARRAY_BYTES_MAX / SECTOR as u64, version);
            fs::write(images.folder().join(format!("v{version}")), &fill).expect("room on disk");
            fill
        })
        .collect();
    let guest = Guest::new().share(images.folder()).limit_s(400);
    let beside = |script: &str, ours: &mut dyn FnMut()| {
        thread::scope(|scope| {
            let md = scope.spawn(|| guest.succeed(script));
            ours();
            md.join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    };
    let theirs = images_of("k", cases, &images);
    let own = images_of("u", cases, &images);

    let makes: String = cases.iter().map(kernel_side::makes).collect();
    let printed = beside(&in_folder("k", &makes), &mut || {
        for (index, ours) in own.iter().enumerate() {
            let content = |bytes: u64| fills[0][..bytes as usize].to_vec();
            let expected = ours.make(&content, Pattern { seed: 200 + index as u64 });
            expect_in_guest(&images, "u", ours.case, &expected);
        }
    });
    let sizes = sizes(&printed);
    assert_eq!(sizes.len(), cases.len(), "md must say every size:\n{printed}");

    let degraded: String =
        cases.iter().map(|case| kernel_side::takes_over(case, case.failed.is_empty())).collect();
    beside(&in_folder("u", &degraded), &mut || {
        for (index, ours) in theirs.iter().enumerate() {
            let bytes = sizes[&*ours.case.name];
            let mut expected = fills[0][..bytes].to_vec();
            let third = bytes / 3 / 65536 * 65536;
            expected[third..2 * third].copy_from_slice(&fills[1][..third]);
            let expected = ours.take_over(expected, Pattern { seed: 100 + index as u64 });
            expect_in_guest(&images, "k", ours.case, &expected);
        }
    });

    let whole: String = cases.iter().map(|case| kernel_side::takes_over(case, true)).collect();
    let verify = |ours: &Ours<'_>| ours.verify(&fills[2][..sizes[&*ours.case.name]]);
    beside(&in_folder("k", &whole), &mut || own.iter().for_each(verify));
    theirs.iter().for_each(verify);
}

/// Empty images for every case, in a folder below `images`.
fn images_of<'a>(folder: &str, cases: &'a [Case], images: &Images) -> Vec<Ours<'a>> {
    fs::create_dir(images.folder().join(folder)).expect("a new folder");
    let sparse = |case: &Case, kind: &str, count: usize| {
        images.sparse(&format!("{folder}/{}-{kind}", case.name), count, MEMBER_BYTES)
    };
    cases
        .iter()
        .map(|case| Ours {
            case,
            members: sparse(case, "m", case.members),
            spares: sparse(case, "s", case.failed.len()),
        })
        .collect()
}

/// Guest script on the images of one folder.
fn in_folder(folder: &str, script: &str) -> String {
    format!("DIR=$SHARE/{folder}\n{script}")
}

/// The guest compares an array with this.
fn expect_in_guest(images: &Images, folder: &str, case: &Case, expected: &[u8]) {
    let file = images.folder().join(folder).join(format!("{}-expected", case.name));
    fs::write(file, expected).expect("room on disk");
}

/// Bytes of every array that md made.
fn sizes(printed: &str) -> BTreeMap<&str, usize> {
    printed
        .lines()
        .filter_map(|line| {
            let (name, bytes) = line.split_once(' ')?;
            Some((name, bytes.parse().ok()?))
        })
        .collect()
}

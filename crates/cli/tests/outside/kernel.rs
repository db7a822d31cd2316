//! The oracle itself: Linux md under User-Mode Linux must be there and must bite.

use crate::harness::{Guest, Images, MIB, Pattern, flip};

#[test]
fn the_guest_reports_what_its_script_printed_and_returned() {
    let outcome = Guest::new().run("echo \"$N disks\"; exit 7");
    assert_eq!((outcome.status, outcome.printed.as_str()), (7, "0 disks\n"));
}

/// The guest looks through its host's /proc at what its own kernel has mapped.
#[test]
fn the_guest_runs_with_the_library_that_it_needs_where_the_processor_has_amx() {
    let script = "mkdir /run/host && mount -t hostfs none /run/host -o /proc
         ls -l /run/host/self/map_files | grep -c '/libmdspace_uml_xstate.so$' || true
         sha256sum /bin/bash | wc -l";
    let has_amx =
        std::fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| text.contains("amx_tile"));
    let mapped = |printed: &str| printed.lines().next() != Some("0");

    let preloaded = Guest::new().xstate_always().succeed(script);
    assert!(mapped(&preloaded) && preloaded.ends_with("\n1\n"), "{preloaded}");
    let plain = Guest::new().succeed(script);
    assert_eq!(mapped(&plain), has_amx, "only a processor with AMX needs it: {plain}");
}

#[test]
fn md_writes_and_checks_an_array_and_counts_a_flipped_byte() {
    let images = Images::new();
    let members = images.sparse("m", 3, 16 * MIB);
    let pattern = Pattern { seed: 1 };
    pattern.write_file(&images.folder().join("data"), 16 * MIB / 512, 1);
    let script = |last: &str| {
        format!(
            "attach $SHARE/m0 $SHARE/m1 $SHARE/m2
             {last}
             quietly mdadm --stop /dev/md0; detach"
        )
    };
    let guest = Guest::new().share(images.folder());

    let created = guest.succeed(&script(
        "quietly mdadm --create /dev/md0 --run --level=5 --raid-devices=3 --size=8M --chunk=64 \\
           --data-offset=1M \"${LOOPS[@]}\"
         settle md0
         dd if=$SHARE/data of=/dev/md0 bs=1M oflag=direct status=none
         check md0; echo \"mismatches $MISMATCHES\"",
    ));
    assert!(created.contains("mismatches 0"), "{created}");

    flip(&members[1], MIB + 12345);
    let flipped = guest.succeed(&script(
        "quietly mdadm --assemble /dev/md0 \"${LOOPS[@]}\"
         check md0; echo \"mismatches $MISMATCHES\"",
    ));
    assert!(flipped.contains("mismatches 8"), "md must count the flipped page: {flipped}");
}

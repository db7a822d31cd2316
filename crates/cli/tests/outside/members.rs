//! Members that change their size under an array, and the udev rule that keeps md away from ours.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::harness::{
    Guest, Images, MIB, Mdspace, Nbd, Pattern, Request, SECTOR, Tools, path_text, project, until,
};

const MEMBER_BYTES: u64 = 6 * MIB;

/// An array of files, filled with a pattern.
struct Filled {
    mdspace: Mdspace,
    members: Vec<PathBuf>,
    data: Vec<u8>,
    // Dropped last: the members lie in it.
    _images: Images,
}

impl Filled {
    fn new(options: &[&str], members: usize) -> Self {
        Self::up_to_the_end(&[&["--size=4M"], options].concat(), members)
    }

    /// Where `options` do not say otherwise, the last byte of each member is the array's.
    fn up_to_the_end(options: &[&str], members: usize) -> Self {
        let (mdspace, images) = (Mdspace::new(), Images::new());
        let members = images.sparse("m", members, MEMBER_BYTES);
        let slots = format!("--raid-devices={}", members.len());
        let serve = mdspace.serve("a");
        let fixed = ["create", "a", "--assume-clean", &slots, &serve];
        let mut arguments = [&fixed, options].concat();
        arguments.extend(members.iter().map(|member| path_text(member)));
        mdspace.succeed(&arguments);
        let mut nbd = mdspace.connect("a");
        let data = Pattern { seed: 71 }.bytes(0, nbd.bytes / SECTOR as u64, 1);
        nbd.write(0, &data);
        nbd.flush();
        Self { mdspace, members, data, _images: images }
    }

    fn assemble(&self) {
        let serve = self.mdspace.serve("a");
        let mut arguments = vec!["assemble", "a", &serve];
        arguments.extend(self.members.iter().map(|member| path_text(member)));
        self.mdspace.succeed(&arguments);
    }

    fn is_whole(&self, nbd: &mut Nbd) -> bool {
        nbd.bytes == self.data.len() as u64 && nbd.read(0, nbd.bytes as u32) == self.data
    }

    fn resize(&self, member: usize, bytes: u64) {
        let file = File::options().write(true).open(&self.members[member]).expect("a member");
        file.set_len(bytes).expect("a sparse file of any size");
    }
}

#[test]
fn a_member_that_shrinks_under_a_running_array_is_failed_and_never_read_wrong() {
    for (options, members) in [
        (&["--level=1"][..], 2),
        (&["--level=5", "--chunk=64"], 4),
        (&["--level=10", "--chunk=64"], 4),
    ] {
        let filled = Filled::new(options, members);
        filled.resize(1, 3 * MIB);
        let mut nbd = filled.mdspace.connect("a");
        // A mirror reads from both in turns.
        for offset in (0..nbd.bytes).step_by(64 << 10) {
            for _ in 0..2 {
                let at = offset as usize;
                assert!(
                    nbd.read(offset, 64 << 10) == filled.data[at..at + (64 << 10)],
                    "{options:?}"
                );
            }
        }
        assert!(filled.is_whole(&mut nbd), "{options:?}");
        // Whether or not it was read: a write behind its end would leave a hole of zeroes.
        until("the member is failed", || filled.mdspace.value("a", "degraded") == "1");
        nbd.write(0, &filled.data);
        assert!(filled.is_whole(&mut nbd), "{options:?}");
        drop(nbd);
        filled.mdspace.succeed(&["stop", "a"]);
    }
}

#[test]
fn without_redundancy_a_member_that_shrinks_is_an_error_and_nothing_wrong() {
    let filled = Filled::new(&["--level=0", "--chunk=64", "--data-offset=1M"], 2);
    filled.resize(1, 3 * MIB);
    let mut nbd = filled.mdspace.connect("a");
    let mut errors = 0;
    for offset in (0..nbd.bytes).step_by(64 << 10) {
        nbd.submit(&Request::Read(offset, 64 << 10)).expect("it takes a read");
        let reply = nbd.receive().expect("it answers");
        let at = offset as usize;
        errors += u64::from(reply.error != 0);
        assert!(reply.error != 0 || reply.data == filled.data[at..at + (64 << 10)], "at {offset}");
    }
    assert!(errors > 0, "what is cut off cannot be read");
    drop(nbd);
    filled.mdspace.succeed(&["stop", "a", "--force"]);
}

/// A write at the end of such a file would make it as long as it was, and hide the cut.
#[test]
fn a_member_that_is_cut_and_written_at_its_end_is_failed_and_never_read_wrong() {
    const LAST: usize = 64 << 10;
    let options = ["--level=1", "--data-offset=1M"];
    let mut filled = Filled::up_to_the_end(&options, 2);
    let mut nbd = filled.mdspace.connect("a");
    filled.mdspace.succeed(&["set", "a", "read_policy=first"]);
    filled.resize(0, 3 * MIB);
    let at = filled.data.len() - LAST;
    filled.data[at..].fill(0x5a);
    nbd.write(at as u64, &filled.data[at..]);
    until("the member is failed", || filled.mdspace.value("a", "degraded") == "1");
    assert!(fs::metadata(&filled.members[0]).expect("a member").len() < MEMBER_BYTES);
    assert!(filled.is_whole(&mut nbd));
    drop(nbd);
    filled.mdspace.succeed(&["stop", "a"]);
}

/// The last member of a new RAID5 is computed from the others, and so is what takes a member's place.
#[test]
fn files_with_holes_take_no_more_room_than_their_data() {
    let (images, mdspace) = (Images::new(), Mdspace::new());
    let members = images.sparse("m", 4, 256 * MIB);
    let names: Vec<&str> = members.iter().map(|path| path_text(path)).collect();
    let [first, others @ .., new] = &names[..] else { unreachable!("four members") };
    let serve = mdspace.serve("holes");
    let create = ["create", "holes", "--level=5", "--raid-devices=3", "--run", &serve, first];
    mdspace.succeed(&[&create[..], others].concat());
    mdspace.settle("holes");
    let data = vec![0x5a; 4 << 20];
    mdspace.connect("holes").write(0, &data);
    mdspace.succeed(&["fail", "holes", first]);
    mdspace.succeed(&["add", "holes", "--run", new]);
    mdspace.settle("holes");
    assert_eq!(mdspace.check("holes"), 0);
    assert_eq!(mdspace.connect("holes").read(0, 4 << 20), data);
    mdspace.succeed(&["stop", "holes"]);
    for path in &members {
        let bytes = fs::metadata(path).expect("a member").blocks() * 512;
        assert!(bytes < 16 * MIB, "{} takes {bytes} bytes", path.display());
    }
}

#[test]
fn a_member_that_grows_changes_nothing() {
    for metadata in ["1.1", "1.2"] {
        let filled = Filled::new(&["--level=5", &format!("--metadata={metadata}")], 3);
        filled.resize(0, 2 * MEMBER_BYTES);
        let mut nbd = filled.mdspace.connect("a");
        nbd.write(0, &filled.data);
        assert!(filled.is_whole(&mut nbd), "{metadata}, while it runs");
        drop(nbd);
        filled.mdspace.succeed(&["stop", "a"]);
        filled.resize(2, 3 * MEMBER_BYTES + SECTOR as u64);
        filled.assemble();
        assert!(filled.is_whole(&mut filled.mdspace.connect("a")), "{metadata}, assembled again");
        assert_eq!(filled.mdspace.check("a"), 0);
        filled.mdspace.succeed(&["stop", "a"]);
    }
}

/// With metadata 1.0 the superblock is found by the end of the device: as under md, a member that
/// has grown since has none, until it has its size again.
#[test]
fn a_grown_member_with_its_superblock_at_the_end_is_left_out_and_named() {
    let filled = Filled::new(&["--level=1", "--metadata=1.0"], 2);
    filled.mdspace.succeed(&["stop", "a"]);
    filled.resize(1, 2 * MEMBER_BYTES);
    let [one, other] = [0, 1].map(|member| path_text(&filled.members[member]));
    let refused = filled.mdspace.run(&["assemble", "a", one, other]);
    assert_eq!(refused.status, 1, "{refused:#?}");
    assert!(refused.err.contains(&format!("{other} has no md superblock")), "{refused:#?}");
    filled.resize(1, MEMBER_BYTES);
    filled.assemble();
    assert_eq!(filled.mdspace.value("a", "degraded"), "0");
    assert!(filled.is_whole(&mut filled.mdspace.connect("a")));
    filled.mdspace.succeed(&["stop", "a"]);
}

/// Two arrays on the partitions of two disks: as under md the second waits, and goes on when the first has
/// ended, or at once where the user says so.
#[test]
fn arrays_on_partitions_of_one_disk_sync_one_after_the_other() {
    let images = Images::new();
    for disk in images.sparse("disk", 2, 64 * MIB) {
        let file = File::options().write(true).open(disk).expect("an image");
        file.write_all_at(&two_partitions(30 * MIB), 0).expect("room on disk");
    }
    Guest::new().share(images.folder()).succeed(
        "A=$(losetup -P --find --show $SHARE/disk0) B=$(losetup -P --find --show $SHARE/disk1)
         for number in 1 2; do
           quietly mdspace create a$number --level=1 --raid-devices=2 --assume-clean --run \
             ${A}p$number ${B}p$number
           mdspace set a$number sync_speed_min=64; mdspace set a$number sync_speed_max=512
         done
         ours() { [ \"$(mdspace get $1 sync_completed)\" $2 delayed ]; }
         mdspace action a1 check; mdspace action a2 check
         until ours a2 =; do pause; done
         ours a1 !=; mdspace mdstat | grep -q resync=DELAYED
         mdspace set a2 sync_force_parallel=1
         until ours a2 !=; do pause; done
         ours a1 !=; mdspace set a2 sync_force_parallel=0
         mdspace action a2 idle; until [ \"$(mdspace get a2 sync_action)\" = idle ]; do pause; done
         mdspace action a2 check; until ours a2 =; do pause; done
         mdspace set a1 sync_speed_max=none; mdspace set a2 sync_speed_max=none
         quietly mdspace wait a2; [ \"$(mdspace get a2 last_sync_action)\" = check ]
         mdspace stop a1; mdspace stop a2; losetup --detach $A $B",
    );
}

/// The kernel lets every mapping have every device below it, and keeps no two of them apart.
#[test]
fn two_mappings_over_the_same_bytes_are_members_of_one_array_only() {
    let images = Images::new();
    images.sparse("disk", 1, 64 * MIB);
    images.sparse("other", 3, 16 * MIB);
    Guest::new().share(images.folder()).succeed(
        "modprobe dm-mod; attach $SHARE/disk0 $SHARE/other{0,1,2}; DISK=${LOOPS[0]}
         table() { echo \"0 32768 linear $DISK $2\" | dmsetup create $1; }
         table one 0; table apart 32768; table both 16384
         printf '0 8192 linear %s 98304\n8192 24576 linear %s 8192\n' $DISK $DISK | dmsetup create pieces
         create() {
           mdspace create $1 --level=1 --raid-devices=2 --assume-clean --run /dev/mapper/$2 ${LOOPS[$3]}
         }
         refused() { if create $1 $2 $3 2>/run/why; then exit 1; fi; grep -q 'in use by' /run/why; }
         quietly create a one 1
         refused b both 2; refused b pieces 2
         quietly create b apart 2
         refused c both 3
         mdspace stop a; mdspace stop b
         echo \"0 8192 linear /dev/mapper/one 0\" | dmsetup create upper
         quietly create a upper 1; quietly create b pieces 2
         refused c both 3
         mdspace stop a; mdspace stop b
         dmsetup remove upper; dmsetup remove one apart both pieces; detach",
    );
}

/// The superblock shows on a mapping, and on what is below it.
#[test]
fn an_array_on_mappings_is_found_by_its_uuid() {
    let images = Images::new();
    images.sparse("disk", 2, 16 * MIB);
    Guest::new().share(images.folder()).succeed(
        "modprobe dm-mod; attach $SHARE/disk{0,1}
         echo \"0 32768 linear ${LOOPS[0]} 0\" | dmsetup create one
         quietly mdspace create a --level=1 --raid-devices=2 --assume-clean --run \
           /dev/mapper/one ${LOOPS[1]}
         ID=$(mdspace detail a | grep -Eo '[0-9a-f]{8}(:[0-9a-f]{8}){3}' | head -n1)
         mdspace stop a
         mdspace assemble a --uuid=$ID >/run/said 2>&1 || { cat /run/said; exit 1; }
         grep -q 'started with 2 of 2' /run/said; grep -q \"${LOOPS[0]} has the same bytes\" /run/said
         mdspace stop a; dmsetup remove one; detach",
    );
}

/// That one was removed, and is plugged in still: its superblock is of the array.
#[test]
fn an_array_of_which_a_saved_name_leads_to_a_removed_member_finds_the_other_one() {
    let images = Images::new();
    images.sparse("disk", 3, 16 * MIB);
    Guest::new().share(images.folder()).succeed(
        "attach $SHARE/disk{0,1,2}; ln -s ${LOOPS[1]} /dev/slot
         quietly mdspace create a --level=1 --raid-devices=2 --assume-clean --run ${LOOPS[0]} ${LOOPS[2]}
         quietly mdspace fail a ${LOOPS[2]}; quietly mdspace remove a ${LOOPS[2]}
         quietly mdspace add a --run /dev/slot; quietly mdspace wait a
         quietly mdspace save a; quietly mdspace stop a; ln -sf ${LOOPS[2]} /dev/slot
         mdspace assemble a >/run/said 2>&1 || { cat /run/said; exit 1; }
         grep -q 'started with 2 of 2' /run/said || { cat /run/said; exit 1; }
         mdspace stop a; detach",
    );
}

/// Two disks may tell one serial number: the name in by-id leads to either of them.
#[test]
fn an_array_of_which_two_saved_names_lead_to_one_device_finds_the_other_one() {
    let images = Images::new();
    images.sparse("disk", 2, 16 * MIB);
    Guest::new().share(images.folder()).succeed(
        "attach $SHARE/disk{0,1}; ln -s ${LOOPS[1]} /dev/serial
         quietly mdspace create a --level=1 --raid-devices=2 --assume-clean --run \
           ${LOOPS[0]} /dev/serial --save
         for leads in 0 1; do
           mdspace stop a; ln -sf ${LOOPS[$leads]} /dev/serial
           mdspace assemble a >/run/said 2>&1 || { cat /run/said; exit 1; }
           grep -q 'started with 2 of 2' /run/said || { cat /run/said; exit 1; }
         done
         mdspace stop a; detach",
    );
}

/// The kernel keeps what a process had until the last of its calls has ended.
#[test]
fn a_killed_process_that_cannot_end_keeps_its_members_and_is_named() {
    let images = Images::new();
    images.sparse("disk", 1, 64 * MIB);
    images.sparse("other", 1, 16 * MIB);
    Guest::new().share(images.folder()).succeed(
        "mkfs.ext4 -q $SHARE/disk0; attach $SHARE/disk0; mkdir /run/mnt; mount ${LOOPS[0]} /run/mnt
         truncate -s 16M /run/mnt/member; MEMBERS=(/run/mnt/member $SHARE/other0)
         quietly mdspace create a --level=1 --raid-devices=2 --assume-clean --serve=$FRONT ${MEMBERS[@]}
         PROCESS=$(mdspace detail a --json | grep -o '\"pid\": *[0-9]*'); PROCESS=${PROCESS##*[: ]}
         fsfreeze --freeze /run/mnt
         # It ends with an error when the process has ended.
         qemu-io -f raw -c 'write -q 0 1M' $URI &>/dev/null &
         until grep -q ' D ' /proc/$PROCESS/task/*/stat; do pause; done
         kill -9 $PROCESS
         if mdspace assemble a --run ${MEMBERS[1]} 2>/run/why; then exit 1; fi
         grep -q \"in use by mdspace (process $PROCESS), which was stopped or killed and cannot end\" /run/why
         fsfreeze --unfreeze /run/mnt
         until quietly mdspace assemble a ${MEMBERS[@]}; do pause; done
         mdspace stop a; wait; umount /run/mnt; detach",
    );
}

/// What a ring has registered some kernels keep as long as any call of it is under way.
#[test]
fn an_array_starts_again_without_a_device_that_hangs() {
    let images = Images::new();
    let disks = images.sparse("disk", 2, 16 * MIB);
    Guest::new().disks(&disks).succeed(
        "modprobe dm-mod
         echo \"0 $(blockdev --getsz $D0) linear $D0 0\" | dmsetup create hangs
         quietly mdspace create a --level=1 --raid-devices=2 --assume-clean --run --serve=$FRONT /dev/mapper/hangs $D1
         dmsetup suspend --noflush --nolockfs hangs
         qemu-io -f raw -c 'write -q 0 4k' $URI
         mdspace stop a
         mdspace assemble a --run $D1; mdspace stop a
         dmsetup resume hangs
         until dmsetup remove hangs 2>/dev/null; do pause; done",
    );
}

/// A disk behind two paths, of which one hangs: the other one is there for that.
#[test]
fn an_array_starts_again_while_a_path_of_a_member_hangs_in_a_read() {
    path_hangs(
        "until [ $(states failed) = 1 ]; do pause; done
         quietly mdspace restart a
         quietly mdspace detail a; [ $(states failed) = 1 ]
         qemu-io -f raw -c 'write -q 0 4k' $URI
         mdspace fail a multipath:/run/paths; mdspace remove a multipath:/run/paths
         quietly mdspace re-add a multipath:/run/paths; quietly mdspace wait a
         [ $(states failed) = 1 ]
         dmsetup resume one
         until [ $(states failed) = 0 ]; do pause; done
         mdspace stop a",
    );
}

/// It could land over newer ones that went over the other path.
#[test]
fn an_array_is_not_stopped_to_start_again_while_a_path_of_a_member_hangs_in_a_write() {
    path_hangs(
        "for round in 1 2 3 4; do qemu-io -f raw -c 'write -q 0 4k' $URI & done; wait
         until [ $(states failed) = 1 ]; do pause; done
         if mdspace restart a 2>/run/why; then exit 1; fi; cat /run/why
         grep -q 'a write that was sent over /dev/mapper/one hangs there' /run/why
         quietly mdspace detail a
         mdspace fail a multipath:/run/paths
         mdspace remove a multipath:/run/paths | grep -q 'a write that was sent over /dev/mapper/one hangs there'
         if mdspace re-add a multipath:/run/paths 2>/run/why; then exit 1; fi; cat /run/why
         grep -q 'leave it out of the file once nothing that was sent over it can land' /run/why
         dmsetup resume one
         until mdspace re-add a multipath:/run/paths; do pause; done
         quietly mdspace restart a; mdspace stop a",
    );
}

/// Runs a script in which path `one` of two to a disk, a member of array `a`, has begun to hang.
fn path_hangs(script: &str) {
    let images = Images::new();
    let disks = images.sparse("disk", 1, 16 * MIB);
    images.sparse("other", 1, 16 * MIB);
    let prepare = "modprobe dm-mod
         for path in one two; do echo \"0 $(blockdev --getsz $D0) linear $D0 0\" | dmsetup create $path; done
         echo '[[group]]
         path = [{member = \"/dev/mapper/one\"}, {member = \"/dev/mapper/two\"}]' >/run/paths
         quietly mdspace create a --level=1 --raid-devices=2 --assume-clean --run --serve=$FRONT \
           multipath:/run/paths $SHARE/other0
         states() { mdspace detail a --json | grep -Eo '\"state\": *\"(active|failed|joining)\"' | grep -c $1 || :; }
         until [ $(states active) = 3 ]; do pause; done
         dmsetup suspend --noflush --nolockfs one";
    let script = format!("{prepare}\n{script}\ndmsetup remove one two");
    Guest::new().share(images.folder()).disks(&disks).succeed(&script);
}

/// A partition table as MBR has it, with two partitions of so many bytes from 1 MiB on.
fn two_partitions(bytes: u64) -> [u8; SECTOR] {
    let mut table = [0; SECTOR];
    let sectors = (bytes / SECTOR as u64) as u32;
    for (entry, start) in table[446..].chunks_mut(16).zip([2048_u32, 2048 + sectors]) {
        entry[4] = 0xfd;
        entry[8..12].copy_from_slice(&start.to_le_bytes());
        entry[12..16].copy_from_slice(&sectors.to_le_bytes());
    }
    table[510..].copy_from_slice(&[0x55, 0xaa]);
    table
}

/// What udev knows of an event, and which files are there.
struct Event<'a> {
    properties: BTreeMap<&'a str, String>,
    files: &'a [&'a str],
}

impl Event<'_> {
    fn value(&self, key: &str) -> String {
        let inside = key.strip_prefix("ENV{").and_then(|key| key.strip_suffix('}'));
        self.properties.get(inside.unwrap_or(key)).cloned().unwrap_or_default()
    }

    /// `$env{KEY}` and `$devnode` in a value.
    fn filled_in(&self, text: &str) -> String {
        let mut text = text.replace("$devnode", "/dev/sdx");
        while let Some((before, rest)) = text.clone().split_once("$env{") {
            let (key, after) = rest.split_once('}').expect("a key ends");
            text = format!("{before}{}{after}", self.value(key));
        }
        text
    }

    /// Runs rules as udev does: lines of `KEY operator "value"`, where matches guard the rest.
    /// Programs are not run but returned.
    fn run(&mut self, rules: &str) -> Vec<String> {
        let (mut programs, mut goto) = (Vec::new(), None::<String>);
        for line in rules.replace("\\\n", " ").lines().map(str::trim) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let tokens = tokens(line);
            if let Some(label) = &goto {
                if !tokens.iter().any(|(key, _, value)| key == "LABEL" && value == label) {
                    continue;
                }
                goto = None;
            }
            if tokens.iter().all(|token| self.matches(token)) {
                for (key, operator, value) in tokens {
                    match key.as_str() {
                        "GOTO" => goto = Some(value),
                        "IMPORT{program}" | "RUN" | "RUN{program}" | "PROGRAM" => {
                            programs.push(self.filled_in(&value));
                        }
                        key if operator == "=" && key.starts_with("ENV{") => {
                            let key = Box::leak(key[4..key.len() - 1].to_owned().into_boxed_str());
                            let value = self.filled_in(&value);
                            self.properties.insert(key, value);
                        }
                        _ => {}
                    }
                }
            }
        }
        programs
    }

    /// Whether a token is an assignment, or a match that holds.
    fn matches(&self, (key, operator, value): &(String, String, String)) -> bool {
        let holds = match key.as_str() {
            key if key.starts_with("TEST") => {
                let path = self.filled_in(value);
                self.files.iter().any(|file| *file == path)
            }
            key => value.split('|').any(|pattern| like(&self.value(key), pattern)),
        };
        match operator.as_str() {
            "==" => holds,
            "!=" => !holds,
            _ => true,
        }
    }
}

/// udev's patterns, as far as these rules need them: a literal, `?*` and a `*` at the end.
fn like(value: &str, pattern: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some("?") => !value.is_empty(),
        Some(start) => value.starts_with(start),
        None => value == pattern,
    }
}

/// `KEY`, operator and value of each part of a rule.
fn tokens(line: &str) -> Vec<(String, String, String)> {
    let mut tokens = Vec::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('"') {
        let (value, after) = after.split_once('"').expect("a value ends");
        let before = before.trim_matches(|c: char| c == ',' || c.is_whitespace());
        let at = before.find(['=', '!', '+', '-']).expect("a key has an operator");
        let (key, operator) = before.split_at(at);
        tokens.push((key.to_owned(), operator.trim().to_owned(), value.to_owned()));
        rest = after;
    }
    tokens
}

/// What mdadm's own rule would run for a member, after ours has seen it or has not.
fn programs_of_mdadm(rules: &str, ours: Option<&str>, files: &[&str]) -> Vec<String> {
    let properties = [
        ("SUBSYSTEM", "block"),
        ("ACTION", "change"),
        ("ID_FS_TYPE", "linux_raid_member"),
        ("ID_FS_UUID", "01234567-89ab-cdef-0123-456789abcdef"),
        ("DEVTYPE", "disk"),
    ];
    let properties = properties.map(|(key, value)| (key, value.to_owned())).into();
    let mut event = Event { properties, files };
    if let Some(ours) = ours {
        assert!(event.run(ours).is_empty(), "our rule runs nothing");
    }
    event.run(rules)
}

#[test]
fn our_udev_rule_keeps_mdadms_from_members_of_arrays_that_mdspace_has_or_had() {
    let ours = fs::read_to_string(project().join("packaging/udev/63-mdspace.rules"));
    let ours = ours.expect("our rule");
    let Some(theirs) = mdadms_rule() else { return };
    let assembles =
        |programs: Vec<String>| programs.iter().any(|program| program.contains("--incremental"));
    for folder in ["/run/mdspace", "/etc/mdspace"] {
        let claim = format!("{folder}/by-uuid/01234567-89ab-cdef-0123-456789abcdef");
        let claims = [claim.as_str()];
        assert!(!assembles(programs_of_mdadm(&theirs, Some(&ours), &claims)), "{folder}");
        assert!(
            assembles(programs_of_mdadm(&theirs, None, &claims)),
            "it is our rule that does it"
        );
    }
    let other = ["/etc/mdspace/by-uuid/00000000-89ab-cdef-0123-456789abcdef"];
    assert!(assembles(programs_of_mdadm(&theirs, Some(&ours), &other)), "others are left to md");
}

/// mdadm's rule, from the host or among the fetched packages.
fn mdadms_rule() -> Option<String> {
    let name = "udev/rules.d/64-md-raid-assembly.rules";
    let fetched = Tools::find().root().join("usr/lib").join(name);
    let places = [fetched, Path::new("/usr/lib").join(name), Path::new("/lib").join(name)];
    let found = places.iter().find_map(|place| fs::read_to_string(place).ok());
    if found.is_none() {
        eprintln!("SKIPPED: mdadm's udev rule is neither installed nor fetched");
    }
    found
}

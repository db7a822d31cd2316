//! A leg that md takes, as guest script.

use super::ours::present;
use super::plan::{End, Leg, Step};
use super::{History, Role};
use crate::harness::SECTOR;

/// What the scripts of a boot begin with.
pub(super) const FUNCTIONS: &str = "speed() { echo $3 >/sys/block/$1/md/sync_speed_$2; }\n";

/// Script of a leg of the array with this number in its boot. Bytes of writes are put beside the images.
pub(super) fn script(history: &History, leg: &Leg, number: usize) -> String {
    // An array that is stopped gives its devices back; those that are cut have one each.
    let md = if leg.end == End::Stop { "md0".to_owned() } else { format!("md{}", 1 + number) };
    let device = |image: usize| format!("$I{image}");
    let mut script = format!("echo history {}; LOOPS=()\n", history.seed);
    for (image, file) in history.images.iter().enumerate() {
        let file = file.file_name().expect("a file").display();
        script += &format!("attach $SHARE/{file}; I{image}=$NEW\n");
    }
    let known = |role: &Role| matches!(role, Role::Member | Role::Filling | Role::Replaced);
    let members = present(history).filter(|(_, role)| known(role)).map(|(image, _)| device(image));
    let members = members.collect::<Vec<_>>().join(" ");
    script += &match leg.creates {
        true => format!(
            "quietly mdadm --create /dev/{md} --run {} --size=4M --data-offset=1M \\
               --bitmap=internal --bitmap-chunk=64 {members}\n",
            history.shape.options
        ),
        false => format!("quietly mdadm --assemble --run /dev/{md} {members}\n"),
    };
    let copy = history.copy();
    let copy = copy.file_name().expect("a file").display();
    script += &format!("dd if=/dev/{md} of=$SHARE/{copy} bs=1M iflag=direct status=none\n");
    for step in &leg.steps {
        script += &match step {
            Step::Write(write) => {
                let file = format!("h{}-v{}", history.seed, write.version);
                let path = history.images[0].with_file_name(&file);
                std::fs::write(path, history.bytes(write)).expect("room on disk");
                let sector = SECTOR as u64;
                let (offset, bytes) = (write.first * sector, write.count * sector);
                format!("put {md} $SHARE/{file} {offset} {bytes}\n")
            }
            Step::Flush => {
                format!("dd if=/dev/null of=/dev/{md} conv=fsync,notrunc status=none\n")
            }
            // md refuses a lowest speed above the highest one.
            Step::Slow => format!("speed {md} min 100; speed {md} max 100\n"),
            Step::Settle { degraded } => {
                let lasts = if *degraded { "settle" } else { "whole" };
                format!("speed {md} max 2000000; speed {md} min 1000000; {lasts} {md}\n")
            }
            Step::Check => format!("clean {md}\n"),
            Step::Fail(member) => {
                let member = device(*member);
                format!("quietly mdadm --fail /dev/{md} {member} --remove {member}\n")
            }
            Step::Return(member) => {
                let member = device(*member);
                format!(
                    "quietly mdadm --re-add /dev/{md} {member} || {{
                       quietly mdadm --zero-superblock {member}
                       quietly mdadm --add /dev/{md} {member}; }}\n"
                )
            }
            Step::Replace { old, new } => format!(
                "quietly mdadm /dev/{md} --add {new}
                 quietly mdadm /dev/{md} --replace {old} --with {new}\n",
                old = device(*old),
                new = device(*new)
            ),
            Step::Remove(member) => {
                format!("quietly mdadm /dev/{md} --remove {} || true\n", device(*member))
            }
        };
    }
    if leg.end == End::Stop {
        script += &format!("quietly mdadm --stop /dev/{md}; detach\n");
    }
    script
}

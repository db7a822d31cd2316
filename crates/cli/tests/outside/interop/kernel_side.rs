//! What the real md does with a case, as guest script.

use super::cases::Case;

/// Makes the array, fills it with `$SHARE/v1`, checks it, fails members and writes `$SHARE/v2` over
/// its middle third. Prints `NAME BYTES`.
pub(crate) fn makes(case: &Case) -> String {
    let Case { name, .. } = case;
    let options = case.options().join(" ");
    let check = if case.redundant() { "clean md0" } else { "" };
    let mut script = format!(
        "attach {members}
         quietly mdadm --create /dev/md0 --run --name={name} {options} \"${{LOOPS[@]}}\"
         put md0 $SHARE/v1 0 $(bytes md0)
         {check}\n",
        members = members(case),
    );
    for slot in case.failed {
        script += &format!("quietly mdadm --fail /dev/md0 ${{LOOPS[{slot}]}}\n");
    }
    script
        + &format!(
            "third=$(($(bytes md0) / 3 / 65536 * 65536))
             put md0 $SHARE/v2 $third $third
             echo {name} $(bytes md0)
             quietly mdadm --stop /dev/md0; detach\n"
        )
}

/// Assembles what we left, compares all of it with `$DIR/NAME-expected`, checks, and fills it with
/// `$SHARE/v3`. `rebuilt` says whether the spares are members already, or md must rebuild onto them.
pub(crate) fn takes_over(case: &Case, rebuilt: bool) -> String {
    let Case { name, .. } = case;
    let mut script = format!(
        "attach {members}
         quietly mdadm --assemble /dev/md0 \"${{LOOPS[@]}}\"
         same md0 $DIR/{name}-expected\n",
        members = if rebuilt { rebuilt_members(case) } else { members(case) },
    );
    if !rebuilt {
        script += &format!("[ $(md md0 degraded) = {} ]\n", case.failed.len());
        for spare in spares(case) {
            script += &format!("attach {spare}; quietly mdadm --add /dev/md0 $NEW\n");
        }
        script += &format!("whole md0; same md0 $DIR/{name}-expected\n");
    }
    if case.redundant() {
        script += "clean md0\n";
    }
    script + "put md0 $SHARE/v3 0 $(bytes md0)\nquietly mdadm --stop /dev/md0; detach\n"
}

/// The images of the slots, as they were at create.
fn members(case: &Case) -> String {
    let images: Vec<String> =
        (0..case.members).map(|slot| format!("$DIR/{}-m{slot}", case.name)).collect();
    images.join(" ")
}

/// The images of the slots once spares have replaced the failed ones.
fn rebuilt_members(case: &Case) -> String {
    let kept = (0..case.members).filter(|slot| !case.failed.contains(slot));
    let images: Vec<String> =
        kept.map(|slot| format!("$DIR/{}-m{slot}", case.name)).chain(spares(case)).collect();
    images.join(" ")
}

fn spares(case: &Case) -> impl Iterator<Item = String> {
    (0..case.failed.len()).map(|spare| format!("$DIR/{}-s{spare}", case.name))
}

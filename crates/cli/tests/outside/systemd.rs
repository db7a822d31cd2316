//! Arrays that systemd owns, in a guest whose `systemctl` does with the unit what systemd would.

use crate::harness::{Guest, Images, MIB, project};

/// Runs the unit's command in a clean environment, and returns when the array answers.
const SYSTEMCTL: &str = r#"#!/bin/bash
unit=/etc/systemd/system/mdspace@.service name=${2#mdspace@}
case $1 in
  cat) [ -e $unit ] ;;
  start)
    command=$(sed -n 's/^ExecStart=//p' $unit) OPTIONS='' MEMBERS=''
    eval "env -i PATH='$PATH' setsid ${command//%i/$name} >/run/journal 2>&1 &"
    until mdspace detail "$name" >/run/null 2>&1; do kill -0 $! || { cat /run/journal >&2; exit 1; }; done ;;
esac"#;

#[test]
fn a_saved_array_runs_as_its_unit_where_systemd_has_one() {
    let images = Images::new();
    images.sparse("m", 2, 8 * MIB);
    let unit = project().join("packaging/systemd/mdspace@.service");
    let script = format!(
        "cat >/usr/local/bin/systemctl <<'END'\n{SYSTEMCTL}\nEND
         chmod +x /usr/local/bin/systemctl; ln -s \"$(command -v mdspace)\" /usr/bin/mdspace
         unset MDSPACE_RUN_DIR; mkdir -p /run/systemd/system /etc/systemd/system
         attach $SHARE/m0 $SHARE/m1
         mdspace create a --run --level=1 --raid-devices=2 --assume-clean --serve=$FRONT --save \"${{LOOPS[@]}}\" >/run/said
         grep -q 'systemd knows no mdspace@a' /run/said
         mdspace stop a; rm /etc/mdspace/a.toml

         cp '{unit}' /etc/systemd/system
         mdspace assemble a --serve=$FRONT --save \"${{LOOPS[@]}}\" >/run/said
         grep -q 'runs as mdspace@a' /run/said
         pgrep -f 'mdspace assemble a --foreground' >/run/null
         put() {{ dd if=/dev/urandom of=/run/content bs=1M count=2 status=none; our_put /run/content; our_same /run/content; }}
         put; mdspace stop a

         # What systemd cannot start is told, and nothing is left running.
         sed -i 's/assemble %i/assemble %i --colour/' /etc/systemd/system/mdspace@.service
         if mdspace assemble a --save \"${{LOOPS[@]}}\" >/run/said 2>&1; then exit 1; fi
         grep -q 'journalctl -u mdspace@a' /run/said
         if mdspace detail a 2>/run/said; then exit 1; fi
         detach",
        unit = unit.display(),
    );
    Guest::new().share(images.folder()).succeed(&script);
}

//! `mdspace@NAME`, the systemd unit that owns one array.

use std::env;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use super::stop;
use crate::args::ArrayName;
use crate::config;
use crate::failure::Failure;
use crate::process::launch;

/// Exists where systemd is the system's manager (`sd_booted(3)`).
const SYSTEMD_RUNS: &str = "/run/systemd/system";

/// Gives an array that is saved, and that nobody uses yet, to systemd, where there is one that would look
/// for the array where we do. Without the unit it stays in the process that it has. Adds lines for the user.
pub(super) fn give(name: &ArrayName, notes: &mut Vec<String>) -> Result<(), Failure> {
    if !systemd_would_find_it() {
        return Ok(());
    }
    let unit = format!("mdspace@{name}");
    if !systemctl("cat", &unit).is_ok_and(|output| output.status.success()) {
        notes.push(format!(
            "{name}: stays in a process of its own, since systemd knows no {unit}: \
             `make install` in mdspace's sources puts it there"
        ));
        return Ok(());
    }
    if config::passed_over(name).is_some() {
        notes.push(format!("{name}: stays in a process of its own until then"));
        return Ok(());
    }
    launch::ignore_interrupts();
    notes.extend(stop::stop(name, stop::How::default())?.notes);
    start(name, &unit)?;
    notes
        .push(format!("{name}: runs as {unit}; `systemctl enable {unit}` starts it at every boot"));
    Ok(())
}

/// What still starts an array at each boot, in words.
pub(super) fn starts_it(name: &ArrayName) -> Option<String> {
    let unit = format!("mdspace@{name}");
    let is_enabled = systemd_would_find_it()
        && systemctl("is-enabled", &unit).is_ok_and(|output| output.status.success());
    is_enabled.then(|| format!("{name}: `systemctl disable {unit}`, which starts it at every boot"))
}

fn systemd_would_find_it() -> bool {
    let elsewhere =
        ["MDSPACE_CONFIG_DIR", "MDSPACE_RUN_DIR"].iter().any(|name| env::var_os(name).is_some());
    Path::new(SYSTEMD_RUNS).exists() && rustix::process::geteuid().is_root() && !elsewhere
}

/// Returns when the array answers: the unit's type is `notify`.
fn start(name: &ArrayName, unit: &str) -> Result<(), Failure> {
    let cannot = |why: String| {
        Failure::new(
            format!("systemd does not start {name}"),
            why,
            format!("read `journalctl -u {unit}`; `mdspace assemble {name}` starts it without"),
        )
    };
    // In a group of its own: an interrupt that this command does not heed would end it.
    let mut start = of_unit("start", unit);
    let output = start.process_group(0).output().map_err(|error| cannot(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(cannot(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

fn systemctl(verb: &str, unit: &str) -> io::Result<Output> {
    of_unit(verb, unit).output()
}

fn of_unit(verb: &str, unit: &str) -> Command {
    let mut systemctl = Command::new("systemctl");
    systemctl.args([verb, unit]);
    systemctl
}

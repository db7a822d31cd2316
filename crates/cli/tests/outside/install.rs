//! What `make install` leaves behind, and that `make uninstall` takes it away.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::harness::project;

/// What belongs to an installation, below its prefix.
const FILES: [&str; 9] = [
    "bin/mdspace",
    "share/man/man1/mdspace.1",
    "share/bash-completion/completions/mdspace",
    "share/zsh/site-functions/_mdspace",
    "share/fish/vendor_completions.d/mdspace.fish",
    "lib/systemd/system/mdspace@.service",
    "lib/systemd/system/mdspace-scrub@.service",
    "lib/systemd/system/mdspace-scrub@.timer",
    "lib/udev/rules.d/63-mdspace.rules",
];

/// Runs `make` for an installation below /opt in a folder.
fn make(target: &str, folder: &Path) {
    let program = env!("CARGO_BIN_EXE_mdspace");
    let output = Command::new("make")
        .args([target, "PREFIX=/opt", &format!("PROGRAM={program}")])
        .arg(format!("DESTDIR={}", folder.display()))
        .current_dir(project())
        .output()
        .expect("make runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn files_below(folder: &Path) -> BTreeSet<PathBuf> {
    let entries =
        fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let below = |path: PathBuf| match path.is_dir() {
        true => files_below(&path),
        false => BTreeSet::from([path]),
    };
    entries.flat_map(below).collect()
}

#[test]
fn an_installation_is_whole_runs_and_goes_without_a_trace() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("opt");
    make("install", folder.path());
    let hook = folder.path().join("etc/initramfs-tools/hooks/mdspace");
    let expected = FILES.iter().map(|file| prefix.join(file));
    let expected: BTreeSet<_> = expected.chain([hook.clone()]).collect();
    assert_eq!(files_below(folder.path()), expected);
    for file in &expected {
        assert_ne!(fs::metadata(file).unwrap().len(), 0, "{}", file.display());
    }
    let version = Command::new(prefix.join("bin/mdspace")).arg("--version").output().unwrap();
    assert!(version.status.success());
    let units = prefix.join("lib/systemd/system");
    for unit in ["mdspace@.service", "mdspace-scrub@.service"] {
        let unit = fs::read_to_string(units.join(unit)).unwrap();
        let runs: Vec<&str> = unit.lines().filter(|line| line.starts_with("Exec")).collect();
        assert!(!runs.is_empty());
        assert!(runs.iter().all(|line| line.contains("=/opt/bin/mdspace ")), "{runs:?}");
    }
    let hook = fs::read_to_string(hook).unwrap();
    assert!(hook.contains("/opt/lib/udev/rules.d/63-mdspace.rules \"$DESTDIR"), "{hook}");
    make("uninstall", folder.path());
    assert_eq!(files_below(folder.path()), BTreeSet::new());
}

/// Makes the release of this program in a folder: the Debian package, and the tarball.
pub(crate) fn package(folder: &Path) -> [PathBuf; 2] {
    let script = project().join("tools/package");
    let output = Command::new(script).arg(env!("CARGO_BIN_EXE_mdspace")).arg(folder).output();
    let output = output.expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let paths = String::from_utf8(output.stdout).expect("paths");
    let paths: Vec<PathBuf> = paths.lines().map(PathBuf::from).collect();
    paths.try_into().expect("two files")
}

/// What a Debian package leaves behind.
pub(crate) fn packaged() -> impl Iterator<Item = String> {
    FILES
        .iter()
        .copied()
        .chain(["share/initramfs-tools/hooks/mdspace"])
        .map(|file| format!("/usr/{file}"))
}

#[test]
fn a_package_has_all_of_an_installation_and_a_tarball_installs_it() {
    let folder = tempfile::tempdir().unwrap();
    let [deb, tarball] = package(folder.path());
    let listed = Command::new("dpkg-deb").arg("--contents").arg(&deb).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let files = listed.lines().filter(|line| line.starts_with("-rw"));
    let of_root = files.clone().filter(|line| line.contains(" root/root ")).count();
    let path = |line: &str| line.split(" .").nth(1).unwrap().to_owned();
    let files: BTreeSet<String> = files.map(path).collect();
    assert_eq!(of_root, files.len(), "{listed}");
    let (documents, installed): (BTreeSet<String>, BTreeSet<String>) =
        files.into_iter().partition(|file| file.starts_with("/usr/share/doc/mdspace/"));
    assert_eq!(installed, packaged().collect());
    for document in ["README.md", "recovery.md", "changelog.gz", "copyright"] {
        assert!(documents.contains(&format!("/usr/share/doc/mdspace/{document}")), "{document}");
    }

    let unpacked = Command::new("tar").arg("-xf").arg(&tarball).current_dir(&folder).status();
    assert!(unpacked.unwrap().success());
    let release = tarball.file_name().unwrap().to_str().unwrap().strip_suffix(".tar.gz").unwrap();
    let prefix = folder.path().join("opt");
    let mut install = Command::new("tools/install");
    install.arg("./mdspace").arg(&prefix).current_dir(folder.path().join(release));
    // The hook lies outside of the prefix.
    let installed = install.env("DESTDIR", folder.path().join("root")).status();
    assert!(installed.unwrap().success());
    let below = folder.path().join("root").join(prefix.strip_prefix("/").unwrap());
    let expected: BTreeSet<PathBuf> = FILES.iter().map(|file| below.join(file)).collect();
    assert_eq!(files_below(&below), expected);
}

/// There udev runs before the root file system is mounted, and mdadm's rule with it.
#[test]
fn the_initial_ram_disk_gets_udevs_rule_and_the_uuids_of_saved_arrays() {
    let folder = tempfile::tempdir().unwrap();
    let (host, disk) = (folder.path().join("host"), folder.path().join("disk"));
    let entry = "etc/mdspace/by-uuid/01234567-89ab-cdef-0123-456789abcdef";
    let rule = "usr/lib/udev/rules.d/63-mdspace.rules";
    for file in [entry, rule] {
        let path = host.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "data\n").unwrap();
    }
    // The host's own folders, by another name for the root.
    let hook = fs::read_to_string(project().join("packaging/initramfs/mdspace")).unwrap();
    let root = host.display().to_string();
    let hook = hook.replace(" /usr/lib", &format!(" {root}/usr/lib"));
    let hook = hook.replace(" /etc/mdspace/", &format!(" {root}/etc/mdspace/"));
    let run = |words: &[&str]| {
        let mut command = Command::new("sh");
        command.args(["-c", &hook, "hook"]).args(words).env("DESTDIR", &disk);
        let output = command.output().expect("it runs");
        assert!(output.status.success(), "{output:?}");
        output.stdout
    };
    assert_eq!(run(&["prereqs"]), b"udev\n");
    assert!(!disk.exists(), "it was only asked");
    run(&[]);
    let expected = [entry, rule].map(|file| disk.join(file)).into();
    assert_eq!(files_below(&disk), expected);
}

/// Runs `tools/install`, with programs in `programs` before those of the system.
fn install(words: &[&str], programs: &Path) -> Output {
    let path = format!("{}:{}", programs.display(), env!("PATH"));
    let mut command = Command::new(project().join("tools/install"));
    command.args(words).current_dir(programs).env("PATH", path).env_remove("DESTDIR");
    command.output().expect("it runs")
}

#[test]
fn a_prefix_that_units_could_not_name_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let below = |name: &str| folder.path().join(name).display().to_string();
    let prefixes = ["relative", "~/opt", &below("a|b"), &below("a&b"), &below("a b"), &below("%h")];
    for prefix in prefixes {
        for word in [env!("CARGO_BIN_EXE_mdspace"), "--remove"] {
            let refused = install(&[word, prefix], folder.path());
            assert_eq!(refused.status.code(), Some(2), "{prefix}: {refused:?}");
            assert!(String::from_utf8_lossy(&refused.stderr).contains("PREFIX is"), "{refused:?}");
        }
    }
    assert_eq!(files_below(folder.path()), BTreeSet::new());
}

#[test]
fn udev_is_told_of_its_rule_and_when_that_goes() {
    let folder = tempfile::tempdir().unwrap();
    let (programs, told) = (folder.path().join("programs"), folder.path().join("told"));
    fs::create_dir(&programs).unwrap();
    for name in ["udevadm", "systemctl"] {
        let program = programs.join(name);
        fs::write(&program, format!("#!/bin/sh\necho {name} $* >> {}\n", told.display())).unwrap();
        fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let prefix = folder.path().join("opt").display().to_string();
    for word in [env!("CARGO_BIN_EXE_mdspace"), "--remove"] {
        drop(fs::remove_file(&told));
        let done = install(&[word, &prefix], &programs);
        assert!(done.status.success(), "{done:?}");
        assert!(fs::read_to_string(&told).unwrap().contains("udevadm control --reload"), "{word}");
    }
}

/// As `sudo make install` would in a home directory.
#[test]
fn root_builds_nothing_in_the_source_of_another_user() {
    let folder = tempfile::tempdir().unwrap();
    let make = |target: &str| {
        let mut command = Command::new("make");
        command.arg("-C").arg(folder.path()).arg("-f").arg(project().join("Makefile"));
        let output = command.args(["-n", target]).output().expect("make runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(make("install").contains("cargo build"), "its own");
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    if is_root {
        chown(folder.path(), Some(54_321), None).unwrap();
        let commands = make("install");
        assert!(
            commands.contains("tools/install") && !commands.contains("cargo build"),
            "{commands}"
        );
        assert!(make("build").contains("cargo build"), "where it is told to");
    }
}

#[test]
fn what_is_not_built_is_not_installed_and_the_cure_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (program, prefix) = (folder.path().join("none"), folder.path().join("opt"));
    let words = [program.display().to_string(), prefix.display().to_string()];
    let refused = install(&[&words[0], &words[1]], folder.path());
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("make build"), "{refused:?}");
    assert_eq!(files_below(folder.path()), BTreeSet::new());
}

/// Which drivers are loaded decides what `block` is. It must be the same at each boot.
#[test]
fn the_unit_starts_after_the_modules_that_the_host_loads_at_boot() {
    let packaged = project().join("packaging/systemd/mdspace@.service");
    let unit = fs::read_to_string(packaged).unwrap();
    let mut after = unit.lines().filter_map(|line| line.strip_prefix("After="));
    assert!(after.any(|units| units.contains("systemd-modules-load.service")), "{unit}");
}

/// systemd stops units in the reverse order of their start. One that starts after all local file systems would take the
/// device away before the file system on it is unmounted.
#[test]
fn a_file_system_on_an_array_is_mounted_after_its_unit_and_unmounted_before() {
    let folder = tempfile::tempdir().unwrap();
    let packaged = project().join("packaging/systemd/mdspace@.service");
    let unit = fs::read_to_string(packaged).unwrap();
    let value = |key: &str| {
        let mut lines = unit.lines().filter_map(|line| line.split_once('='));
        lines.find(|(name, _)| *name == key).map(|(_, value)| value).unwrap_or_default()
    };
    let patience = value("ExecStop").split_once("--force-after=").map(|(_, seconds)| seconds);
    let patience: u64 = patience.expect("it waits for mounts").parse().unwrap();
    let minutes = value("TimeoutStopSec").strip_suffix("min").expect("minutes");
    // By force it may take as long as the kernel has something to write, and a moment more.
    assert!(patience + 90 < 60 * minutes.parse::<u64>().unwrap(), "it would be killed");

    let unit = unit.replace("/usr/bin/mdspace", "/bin/true");
    fs::write(folder.path().join("mdspace@.service"), unit).unwrap();
    let mount = "[Unit]\nRequires=mdspace@a.service\nAfter=mdspace@a.service\n\
                 [Mount]\nWhat=/dev/mdspace/a\nWhere=/mnt/a\n";
    fs::write(folder.path().join("mnt-a.mount"), mount).unwrap();
    let wants = folder.path().join("local-fs.target.requires");
    fs::create_dir(&wants).unwrap();
    std::os::unix::fs::symlink("../mnt-a.mount", wants.join("mnt-a.mount")).unwrap();
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no", "local-fs.target"]);
    // The colon stands for the system's own units.
    verify.env("SYSTEMD_UNIT_PATH", format!("{}:", folder.path().display()));
    let Ok(said) = verify.output() else {
        return println!("SKIPPED: no systemd-analyze is here");
    };
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(!said.contains("cycle"), "{said}");
}

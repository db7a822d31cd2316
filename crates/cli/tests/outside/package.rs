//! The Debian package, as a system of its own takes it. It has a hundred thousand files to read for that.

use crate::harness::Guest;
use crate::install::{package, packaged};

#[test]
fn a_package_is_installed_runs_an_array_and_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let [deb, _] = package(folder.path());
    let deb = deb.file_name().unwrap().to_str().unwrap();
    let files: Vec<String> = packaged().collect();
    let files = files.join(" ");
    Guest::new().share(folder.path()).limit_s(300).succeed(&format!(
        r#"
        quietly dpkg --install "$SHARE/{deb}"
        for file in {files}; do [ -s $file ] && [ "$(stat -c %u:%g $file)" = 0:0 ]; done
        grep -q '^Exec.*=/usr/bin/mdspace ' /usr/lib/systemd/system/mdspace@.service
        truncate -s 16M /run/a /run/b
        quietly /usr/bin/mdspace create p --level=1 --raid-devices=2 --assume-clean --run /run/a /run/b
        quietly /usr/bin/mdspace stop p
        quietly dpkg --purge mdspace
        for file in {files}; do [ ! -e $file ]; done
        "#
    ));
}

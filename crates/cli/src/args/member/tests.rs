use super::*;

#[test]
fn each_kind_of_member_is_told_by_its_prefix() {
    let parse = |text: &str| text.parse::<MemberSpec>();
    assert_eq!(parse("/dev/sda"), Ok(MemberSpec::Path("/dev/sda".into())));
    assert_eq!(parse("ram:256M"), Ok(MemberSpec::Ram { bytes: 256 << 20 }));
    assert_eq!(parse("null:nvme?queues=4"), Ok(MemberSpec::Null("nvme?queues=4".into())));
}

#[test]
fn what_is_printed_parses_to_the_same_member() {
    for text in ["/tmp/a", "ram:256M", "null:1G", "null:4K?latency=10us&seed=1", "null:hdd"] {
        let member: MemberSpec = text.parse().expect("a good member");
        assert_eq!(member.to_string(), text);
    }
}

#[test]
fn missing_is_a_word_of_create_alone() {
    assert!("missing".parse::<MemberSpec>().is_err());
    assert_eq!("missing".parse::<MemberOrMissing>(), Ok(MemberOrMissing::Missing));
    for bad in ["", "ram:", "ram:0", "ram:1000", "null:1M?novalue", "null:1M?speed=9"] {
        assert!(bad.parse::<MemberOrMissing>().is_err(), "{bad:?}");
    }
}

#[test]
fn the_help_has_a_line_for_each_preset_and_key() {
    let help = help();
    let lines: Vec<_> = help.lines().map(str::trim_start).collect();
    for preset in mdspace_io::null_presets() {
        let start = format!("null:{} ", preset.name);
        assert_eq!(lines.iter().filter(|line| line.starts_with(&start)).count(), 1, "{start}");
    }
    for key in mdspace_io::null_keys() {
        let start = format!("{} ", key.name);
        assert_eq!(lines.iter().filter(|line| line.starts_with(&start)).count(), 1, "{start}");
    }
}

#[test]
fn docs_mdadm_md_has_every_preset_and_key_of_null() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/mdadm.md");
    let document = std::fs::read_to_string(path).expect("docs/mdadm.md");
    let (_, section) = document.split_once("## Modelled devices").expect("the section");
    for key in mdspace_io::null_keys() {
        let row = format!("| `{}` | {} | {} |", key.name, key.takes, key.means);
        assert!(section.lines().any(|line| line == row), "no row {row}");
    }
    for preset in mdspace_io::null_presets() {
        assert!(section.contains(&format!("\n| `{}` | ", preset.name)), "{}", preset.name);
    }
    let rows = section.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(rows, mdspace_io::null_keys().count() + mdspace_io::null_presets().count());
}

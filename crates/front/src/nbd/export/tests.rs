use super::*;

fn export(name: &str) -> Export {
    Export {
        name: name.into(),
        description: String::new(),
        size_bytes: 8192,
        block_sizes: BlockSizes::new(512, 4096).expect("valid sizes"),
        read_only: false,
        rotational: false,
        trim: true,
        fast_zero: true,
    }
}

#[test]
fn the_empty_name_means_the_first_export_unless_one_is_named_so() {
    let exports = Exports::new(vec![export("a"), export("b")]).expect("valid");
    assert_eq!(exports.find(""), Some(0));
    assert_eq!(exports.find("b"), Some(1));
    assert_eq!(exports.find("c"), None);
    let exports = Exports::new(vec![export("a"), export("")]).expect("valid");
    assert_eq!(exports.find(""), Some(1));
}

#[test]
fn exports_that_no_client_could_use_are_refused() {
    let refused = |exports| Exports::new(exports).expect_err("must be refused");
    assert_eq!(refused(vec![]), ExportError::NoExports);
    let twice = vec![export("a"), export("a")];
    assert_eq!(refused(twice), ExportError::DuplicateName("a".into()));
    let long = export(&"n".repeat(4097));
    assert!(matches!(refused(vec![long]), ExportError::TooLong(_)));
    let odd = Export { size_bytes: 8191, ..export("a") };
    assert!(matches!(refused(vec![odd]), ExportError::UnalignedSize { minimum: 512, .. }));
}

#[test]
fn block_sizes_follow_the_protocol() {
    for (minimum, preferred) in [(1, 512), (512, 512), (4096, 1 << 25), (65536, 65536)] {
        assert!(BlockSizes::new(minimum, preferred).is_ok(), "{minimum} {preferred}");
    }
    for (minimum, preferred) in
        [(0, 512), (3, 512), (1, 256), (512, 4095), (4096, 512), (1 << 17, 1 << 17), (1, 1 << 26)]
    {
        assert!(BlockSizes::new(minimum, preferred).is_err(), "{minimum} {preferred}");
    }
}

#[test]
fn a_read_only_export_offers_nothing_that_writes() {
    let archive = Export { read_only: true, rotational: true, ..export("a") };
    assert_eq!(archive.flags(Framing::Simple), 0b101_0001_1111);
    assert_eq!(export("a").flags(Framing::Structured), 0b1101_1110_1101);
    assert_eq!(export("a").flags(Framing::Extended), 0b1_1101_1110_1101);
}

use super::*;

#[test]
fn each_kind_of_member_is_told_by_its_prefix() {
    let parse = |text: &str| text.parse::<MemberSpec>();
    assert_eq!(parse("/dev/sda"), Ok(MemberSpec::Path("/dev/sda".into())));
    assert_eq!(parse("ram:256M"), Ok(MemberSpec::Ram { bytes: 256 << 20 }));
    assert_eq!(
        parse("null:1G?latency_us=10&jitter=1"),
        Ok(MemberSpec::Null {
            bytes: 1 << 30,
            options: vec![("latency_us".into(), "10".into()), ("jitter".into(), "1".into())],
        })
    );
}

#[test]
fn what_is_printed_parses_to_the_same_member() {
    for text in ["/tmp/a", "ram:256M", "null:1G", "null:4K?latency_us=10&jitter=1"] {
        let member: MemberSpec = text.parse().expect("a good member");
        assert_eq!(member.to_string(), text);
    }
}

#[test]
fn missing_is_a_word_of_create_alone() {
    assert!("missing".parse::<MemberSpec>().is_err());
    assert_eq!("missing".parse::<MemberOrMissing>(), Ok(MemberOrMissing::Missing));
    for bad in ["", "ram:", "ram:0", "ram:1000", "null:1M?novalue"] {
        assert!(bad.parse::<MemberOrMissing>().is_err(), "{bad:?}");
    }
}

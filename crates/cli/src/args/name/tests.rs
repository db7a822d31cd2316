use super::*;

#[test]
fn a_name_is_never_a_path_or_an_option() {
    for bad in ["", ".", "..", ".hidden", "-x", "a/b", "a b", "a:b", "é", &"x".repeat(33)] {
        assert!(bad.parse::<ArrayName>().is_err(), "{bad:?}");
    }
    for good in ["data", "md0", "a.b-c_D", &"x".repeat(32)] {
        assert!(good.parse::<ArrayName>().is_ok(), "{good:?}");
    }
}

#[test]
fn the_host_goes_in_front_only_where_both_fit_in_32_bytes() {
    let name: ArrayName = "data".parse().expect("a good name");
    assert_eq!(name.on_disk(Some("host")), "host:data");
    assert_eq!(name.on_disk(Some(&"h".repeat(27))), format!("{}:data", "h".repeat(27)));
    assert_eq!(name.on_disk(Some(&"h".repeat(28))), "data");
    assert_eq!(name.on_disk(None), "data");
}

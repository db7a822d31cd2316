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

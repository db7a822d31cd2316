use super::*;

#[test]
fn a_device_belongs_to_one_array_or_multipath_device() {
    let known = [Identity::of_array("1"), Identity::of_array("2"), Identity::of_multipath("1")];
    for (at, one) in known.iter().enumerate() {
        assert!(one.is_ours());
        assert!(!known[..at].contains(one));
    }
}

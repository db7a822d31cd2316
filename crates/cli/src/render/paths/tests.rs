use super::*;

/// Of a device without groups.
fn shown(loss: Option<&str>, is_alone: bool) -> String {
    let paths = PathsReport {
        member: "d".into(),
        table: "0 8 multipath 0 0 0 0".into(),
        status: "0 8 multipath 2 0 0 0 0 1".into(),
        queueing: "requests fail while there is no path".into(),
        loss: loss.map(str::to_owned),
        groups: Vec::new(),
        unproved: Vec::new(),
        held: None,
    };
    let mut out = String::new();
    write_paths(&mut out, &paths, is_alone).expect("a String takes all that is written");
    out
}

#[test]
fn a_loss_is_shown_with_what_ends_it_where_a_device_stands_alone() {
    assert!(!shown(None, true).contains("loss"));
    let all_fail = "requests fail until a flush has failed, once";
    let [alone, of_array] = [true, false].map(|is_alone| shown(Some(all_fail), is_alone));
    assert!(of_array.contains(&format!("     loss : {all_fail}\n")), "{of_array}");
    assert!(alone.contains("`sync FILE`") && !of_array.contains("sync FILE"), "{alone}");
}

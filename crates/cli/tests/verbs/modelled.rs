//! Arrays on devices that only pretend.

use serde_json::Value;

use crate::user::User;

#[test]
fn an_array_on_modelled_members_is_no_faster_than_they_are() {
    let user = User::new();
    let bench = "bench run --level=5 --raid-devices=4 --rw=randread --iodepth=32 --runtime=0.5";
    let iops = |member: &str| {
        let out = user.expect(0, &format!("{bench} --json --member={member}"));
        let report: Value = serde_json::from_str(&out).expect("JSON");
        assert_eq!(report["errors"], 0, "{out}");
        ["raw", "array"].map(|side| report[side]["iops"].as_f64().expect("a number"))
    };
    // Four drives, and one more I/O of each than the time has room for, five times.
    for iops in iops("null:16M?read_iops=1000") {
        assert!((1.0..=4200.0).contains(&iops), "{iops} of at most 4000");
    }
    let [raw, _] = iops("null:16M");
    assert!(raw > 4200.0, "the control: without a model {raw}");
}

#[test]
fn a_member_that_keeps_nothing_is_taken_by_its_option_alone() {
    let user = User::with_members(&["a"]);
    for member in ["null:16M", "null:nvme?size=16M"] {
        let create = format!("create x --level=1 --raid-devices=2 --assume-clean a {member}");
        let refused = user.run(&create);
        assert_eq!(refused.status, 2, "{refused:#?}");
        assert!(refused.err.contains(&format!("{member} keeps nothing")), "{refused:#?}");
    }
    user.expect(0, "create x --level=1 --raid-devices=2 --assume-clean --keep-nothing a null:16M");
    assert!(user.expect(0, "detail x").contains("null:16M (keeps nothing)"));
    for order in ["add x null:16M", "replace x a --with null:16M"] {
        let refused = user.run(order);
        assert!(refused.status == 2 && refused.err.contains("--keep-nothing"), "{refused:#?}");
    }
    user.expect(0, "add x --keep-nothing null:17M");
    user.expect(0, "stop x");
}

#[test]
fn a_model_that_cannot_be_is_refused_with_what_can() {
    let user = User::new();
    let refused = |member: &str, why: &[&str]| {
        let done = user.run(&format!("create a --level=1 --raid-devices=2 null:nvme {member}"));
        assert_eq!(done.status, 2, "{done:#?}");
        assert!(why.iter().all(|why| done.err.contains(why)), "{done:#?}");
    };
    refused("null:nvme?speed=9", &["'speed'", "latency", "queue_depth"]);
    refused("null:nvme?queues=0", &["queues=0", "1 to 65536"]);
    refused("null:floppy", &["floppy", "nvme, sata-ssd, hdd"]);
}

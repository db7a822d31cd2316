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

use super::*;

const WHOLE: &str = r#"
size = "64M"
no_path_retry = 4
polling_interval = 0.5
failback = 10
read_deadline = 2
write_deadline = 3.5
cache = "shared"
fence = "true"

[[group]]
selector = "queue-length"
path = [{ member = "nbd://a/x" }, { member = "nbd://b/x", fence = "kill-b" }]

[[group]]
[[group.path]]
member = "/dev/sda"
relative_throughput = 7
"#;

#[test]
fn a_file_says_what_a_table_line_says_and_more() {
    let spec = parse(WHOLE).unwrap();
    assert_eq!(
        spec.table.to_string(),
        "0 131072 multipath 1 queue_if_no_path 0 2 1 queue-length 0 2 1 nbd://a/x 1 nbd://b/x 1 \
         service-time 0 1 2 /dev/sda 1 7"
    );
    let fences: Vec<_> = spec.fences.iter().map(|fence| fence.as_deref().unwrap()).collect();
    assert_eq!(fences, ["true", "kill-b", "true"]);
    let seconds = Duration::from_secs;
    assert_eq!(spec.policy.no_path_retry, Some(4));
    assert_eq!(spec.policy.polling_interval, Duration::from_millis(500));
    assert_eq!(spec.policy.failback, Failback::After(seconds(10)));
    assert_eq!(spec.policy.read_deadline, seconds(2));
    assert_eq!(spec.policy.write_deadline, Duration::from_millis(3500));
    assert_eq!(spec.policy.cache, Cache::Shared);
}

#[test]
fn a_malformed_file_says_where_and_what() {
    let cases = [
        ("", "[[group]]"),
        ("[[group]]\nselector = \"round-robin\"", "group 1: it has no [[group.path]]"),
        ("[[group]]\nselector = \"best\"\npath = [{member = \"a\"}]", "group 1: selector best"),
        ("[[group]]\npath = [{membr = \"a\"}]", "line 2"),
        ("colour = 1", "colour"),
        ("no_path_retry = \"queue\"\n[[group]]", "no_path_retry: 'queue'"),
        ("polling_interval = 0\n[[group]]", "polling_interval: 0"),
        ("read_deadline = 1e9\n[[group]]", "read_deadline"),
        ("failback = \"soon\"\n[[group]]", "failback: 'soon'"),
        ("size = \"7\"\n[[group]]\npath = [{member = \"a\"}]", "size: '7'"),
        ("[[group]]\npath = [{member = \"a b\"}]", "'a b'"),
        ("[[group]]\npath = [{member = \"a\", lanes = \"0\"}]", "lanes"),
        ("[[group]]\npath = [{member = \"a\", relative_throughput = 101}]", "0 to 100"),
        ("table = \"0 9 multipath 0 0 1 1 x\"", "table: word 9"),
        ("table = \"0 9 multipath 0 0 1 1 expected 0 1 0 a\"\n[[group]]", "not both"),
    ];
    for (text, expected) in cases {
        let why = parse(text).expect_err(text);
        assert!(why.contains(expected), "{text}: {why}");
    }
}

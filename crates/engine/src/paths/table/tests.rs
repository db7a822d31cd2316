use super::*;

const LINES: &[&str] = &[
    "0 2048 multipath 0 0 1 1 round-robin 0 1 1 /dev/sda 1",
    "0 2048 multipath 1 queue_if_no_path 0 2 2 round-robin 0 2 1 a 1 b 1 queue-length 0 1 1 c 1",
    "0 9 multipath 5 queue_if_no_path pg_init_retries 50 pg_init_delay_msecs 100 1 alua 1 1 \
     service-time 0 2 2 a 1 10 b 1 0",
    "0 9 multipath 3 retain_attached_hw_handler queue_mode mq 0 1 1 \
     historical-service-time 2 972 0 1 1 a 0",
    "0 9 multipath 0 0 1 1 io-affinity 0 2 1 a 3 b fc",
    "0 9 multipath 0 0 1 1 expected 0 2 0 nbd+unix:///a nbd://host:1/b",
];

#[test]
fn a_line_that_is_read_prints_as_it_was() {
    for line in LINES {
        let table: Table = line.parse().unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!(table.to_string(), *line);
    }
}

#[test]
fn defaults_are_dms() {
    let short = "0 9 multipath 0 0 2 1 service-time 0 1 0 a historical-service-time 0 1 0 b";
    let table: Table = short.parse().unwrap();
    let long =
        "0 9 multipath 0 0 2 1 service-time 0 1 2 a 1 1 historical-service-time 2 972 0 1 1 b 0";
    assert_eq!(table.to_string(), long);
    assert_eq!(long.parse(), Ok(table));
    // A repeat count above 1 is taken, and not used.
    let line = "0 9 multipath 0 0 1 1 round-robin 0 1 1 a 1000";
    assert!(line.parse::<Table>().unwrap().to_string().ends_with(" a 1"));
}

/// The word that is complained of.
fn refused(line: &str) -> (usize, String) {
    let error = line.parse::<Table>().expect_err(line);
    assert!(error.to_string().contains(&format!("word {}", error.word)), "{error}");
    let word = line.split_whitespace().nth(error.word - 1);
    assert_eq!(error.found, word.map_or("its end".into(), |word| format!("'{word}'")), "{error}");
    (error.word, error.to_string())
}

#[test]
fn a_malformed_line_says_where_and_what() {
    let cases = [
        ("", 1, "missing"),
        ("8 9 multipath", 1, "starts at 0"),
        ("0 x multipath", 2, "number"),
        ("0 0 multipath", 2, "at least one sector"),
        ("0 9 linear", 3, "multipath"),
        ("0 9 multipath 1 fast 0", 5, "queue_if_no_path"),
        ("0 9 multipath 1 pg_init_retries 3 0 1 1", 6, "counts their arguments"),
        ("0 9 multipath 2 pg_init_retries many 0", 6, "number"),
        ("0 9 multipath 2 pg_init_retries 51 0", 6, "1 to 50"),
        ("0 9 multipath 2 pg_init_delay_msecs 60001 0", 6, "0 to 60000"),
        ("0 9 multipath 2 queue_mode fast 0", 6, "bio"),
        ("0 9 multipath 0 99 a", 5, "at most"),
        ("0 9 multipath 0 0 0 0", 7, "at least one group"),
        ("0 9 multipath 0 0 1 2", 7, "count from 1"),
        ("0 9 multipath 0 0 1 1 fastest 0 1 0 a", 8, "no selector"),
        ("0 9 multipath 0 0 1 1 round-robin 1 7 1 0 a", 10, "no arguments"),
        ("0 9 multipath 0 0 1 1 historical-service-time 1 1024 1 0 a", 10, "0 to 1023"),
        ("0 9 multipath 0 0 1 1 round-robin 0 0 0", 10, "at least one path"),
        ("0 9 multipath 0 0 1 1 round-robin 0 1 2 a 1 1", 11, "at most 1"),
        ("0 9 multipath 0 0 1 1 io-affinity 0 1 0 a", 11, "one"),
        ("0 9 multipath 0 0 1 1 io-affinity 0 1 1 a zz", 13, "hexadecimal"),
        ("0 9 multipath 0 0 1 1 io-affinity 0 1 1 a 0", 13, "not 0"),
        ("0 9 multipath 0 0 1 1 service-time 0 1 2 a 1 101", 14, "0 to 100"),
        ("0 9 multipath 0 0 1 1 round-robin 0 2 1 a 1 b", 15, "missing"),
        ("0 9 multipath 0 0 1 1 round-robin 0 1 1 a 1 more", 14, "nothing follows"),
    ];
    for (line, word, what) in cases {
        let (at, text) = refused(line);
        assert_eq!(at, word, "{line}: {text}");
        assert!(text.contains(what), "{line}: {text}");
    }
}

#[test]
fn any_line_cut_short_or_with_a_word_changed_is_a_table_or_an_error() {
    for line in LINES {
        let words: Vec<&str> = line.split_whitespace().collect();
        for at in 0..words.len() {
            assert!(words[..at].join(" ").parse::<Table>().is_err(), "{line} cut at {at}");
            for other in ["0", "1", "2", "18446744073709551615", "-1", "é", "multipath"] {
                let mut changed = words.clone();
                changed[at] = other;
                if let Ok(table) = changed.join(" ").parse::<Table>() {
                    assert_eq!(table.to_string().parse(), Ok(table));
                }
            }
        }
    }
}

#[test]
fn a_table_has_64_paths_in_all_and_not_one_more() {
    let table = |last: usize| {
        let group = |count: usize, from: usize| {
            let paths: String = (from..from + count).map(|path| format!(" p{path}")).collect();
            format!("round-robin 0 {count} 0{paths}")
        };
        let line = format!("0 9 multipath 0 0 2 1 {} {}", group(40, 0), group(last, 40));
        line.parse::<Table>().map(|table| table.paths().count())
    };
    assert_eq!(table(24), Ok(64));
    assert!(table(25).expect_err("65").to_string().contains("at most 64 paths"));
}

use super::*;

#[test]
fn a_span_has_a_number_and_a_unit() {
    for (text, seconds) in [("1s", 1), ("90m", 5400), ("2h", 7200), ("366d", YEAR_S)] {
        assert_eq!(text.parse(), Ok(Span(Duration::from_secs(seconds))), "{text}");
    }
}

#[test]
fn anything_else_is_refused() {
    for text in
        ["", "h", "2", "2w", "-1h", "1.5h", "0s", "367d", "99999999999999999999d", "2 h", "ħ"]
    {
        assert!(text.parse::<Span>().is_err(), "{text}");
    }
}

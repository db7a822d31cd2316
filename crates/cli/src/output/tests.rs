use super::*;

#[test]
fn what_steers_a_terminal_or_breaks_a_line_is_escaped() {
    assert_eq!(printable("a\nb\u{1b}[2J"), "a\\nb\\u{1b}[2J");
    assert_eq!(printable("\u{202e}x\u{2066}\u{2028}\u{2029}\u{9b}\u{7f}").find(steers), None);
    assert_eq!(printable("Größe 寸法 /dev/sda1"), "Größe 寸法 /dev/sda1");
    assert_eq!(printable_lines("a\n\tb\r\u{202e}"), "a\n\tb\\r\\u{202e}");
}

#[test]
fn every_text_of_a_value_is_made_plain_and_its_shape_stays() {
    let value = vec![(1, Some("a\nb".to_owned())), (2, None)];
    assert_eq!(plain(&value), [(1, Some("a\\nb".to_owned())), (2, None)]);
}

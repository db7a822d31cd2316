use mdspace_format::Uuid;

use super::*;

#[test]
fn what_is_written_is_read_and_what_is_damaged_is_not() {
    let one = |byte| {
        let (array, device) = (Uuid([1; 16]), Uuid([byte; 16]));
        Rejected { array, device, events: u64::MAX, checksum: 7 }
    };
    let rejected = [one(2), one(3)];
    assert_eq!(parse(&show(&rejected)), rejected);
    let cut = show(&rejected);
    assert_eq!(parse(&cut[..cut.len() - 3]), rejected[..1]);
    assert_eq!(parse("x\n\n"), []);
}

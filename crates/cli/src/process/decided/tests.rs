use mdspace_format::Uuid;

use super::*;

#[test]
fn what_is_written_is_read_and_what_is_damaged_is_not() {
    let one = |byte| {
        let (array, device) = (Uuid([1; 16]), Uuid([byte; 16]));
        Decided { array, device, events: u64::MAX, checksum: 7, went_on: byte == 2 }
    };
    let decided = [one(2), one(3)];
    assert_eq!(parse(&show(&decided)), decided);
    let cut = show(&decided);
    assert_eq!(parse(&cut[..cut.len() - 3]), decided[..1]);
    assert_eq!(parse("x\n\n"), []);
}

use super::*;

#[test]
fn an_error_goes_into_one_of_the_system_with_its_text() {
    for (error, kind) in [
        (Error::ReadOnly, io::ErrorKind::ReadOnlyFilesystem),
        (Error::NoSpace, io::ErrorKind::StorageFull),
        (Error::OnLane, io::ErrorKind::Deadlock),
        (Error::Lost, io::ErrorKind::Other),
    ] {
        let text = error.to_string();
        let of_system = io::Error::from(error);
        assert_eq!((of_system.kind(), of_system.to_string()), (kind, text));
    }
}

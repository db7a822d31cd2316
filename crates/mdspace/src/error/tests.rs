use super::*;

#[test]
fn no_error_names_an_option_of_the_command_line() {
    for refused in [
        CommandError::Needed,
        CommandError::IsWritten,
        CommandError::NeedsLate { late: "a".into() },
        CommandError::HoldsAlone { sectors: 8 },
        CommandError::IsAhead { writes: 1 },
        CommandError::IsRead { sectors: 8 },
        CommandError::Active,
    ] {
        let text = Error::from(refused).to_string();
        assert!(text.contains("before") && !text.contains("--"), "{text}");
    }
}

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

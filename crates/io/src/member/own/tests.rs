use super::*;

/// What a device says, or does instead.
enum Says {
    Errno(i32),
    Words(io::ErrorKind),
    Panics,
}

impl Says {
    fn say(&self) -> io::Result<()> {
        match self {
            Self::Errno(errno) => Err(io::Error::from_raw_os_error(*errno)),
            Self::Words(kind) => Err(io::Error::new(*kind, "words")),
            Self::Panics => panic!("a device that panics on purpose"),
        }
    }
}

impl OwnDevice for Says {
    fn size_bytes(&self) -> u64 {
        512
    }

    fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<()> {
        self.say()
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        self.say()
    }

    fn flush(&self) -> io::Result<()> {
        self.say()
    }
}

#[test]
fn an_error_with_a_number_is_that_of_a_disk_and_any_other_is_of_the_member() {
    for (says, kind) in [
        (Says::Errno(libc::EIO), IoErrorKind::Medium),
        (Says::Errno(libc::ENOSPC), IoErrorKind::NoSpace),
        (Says::Words(io::ErrorKind::StorageFull), IoErrorKind::NoSpace),
        (Says::Words(io::ErrorKind::InvalidData), IoErrorKind::Other),
        (Says::Panics, IoErrorKind::Other),
    ] {
        let own = Own(Arc::new(says));
        let read = own.read(&mut [0; 512], 0).expect_err("an error");
        let written = own.write(&[0; 512], 0).expect_err("an error");
        assert_eq!((read.kind, written.kind), (kind, kind));
    }
}

/// No later flush tells of what was lost.
#[test]
fn whatever_a_device_says_to_a_flush_the_flush_has_failed() {
    for says in [Says::Errno(libc::EIO), Says::Words(io::ErrorKind::Other), Says::Panics] {
        let failed = Own(Arc::new(says)).flush().expect_err("an error");
        assert_eq!(failed.kind, IoErrorKind::Flush);
    }
}

//! Which trouble is which.

use super::*;

#[test]
fn the_kernels_numbers_keep_their_kind() {
    let kinds = [
        (libc::EIO, IoErrorKind::Medium),
        (libc::ENODATA, IoErrorKind::Medium),
        (libc::EILSEQ, IoErrorKind::Medium),
        (libc::ENODEV, IoErrorKind::Gone),
        (libc::ENXIO, IoErrorKind::Gone),
        (libc::ESHUTDOWN, IoErrorKind::Gone),
        (libc::ENOSPC, IoErrorKind::NoSpace),
        (libc::EDQUOT, IoErrorKind::NoSpace),
        (libc::EBADE, IoErrorKind::Reserved),
        (libc::EOPNOTSUPP, IoErrorKind::Unsupported),
        (libc::ECANCELED, IoErrorKind::Cancelled),
        (libc::EINVAL, IoErrorKind::Other),
        (libc::EROFS, IoErrorKind::Other),
    ];
    for (errno, kind) in kinds {
        assert_eq!(io_error(errno), IoError { kind, errno });
    }
}

/// A second flush would say that all is well.
#[test]
fn what_fails_to_make_durable_is_a_failed_flush_unless_the_device_is_gone_or_reserved() {
    let kinds = [
        (libc::EIO, IoErrorKind::Flush),
        (libc::ENODATA, IoErrorKind::Flush),
        (libc::ENOSPC, IoErrorKind::Flush),
        (libc::EINVAL, IoErrorKind::Flush),
        (libc::EBADE, IoErrorKind::Reserved),
        (libc::ENODEV, IoErrorKind::Gone),
        (libc::ECANCELED, IoErrorKind::Cancelled),
    ];
    for (errno, kind) in kinds {
        assert_eq!(flush_error(errno), IoError { kind, errno });
    }
}

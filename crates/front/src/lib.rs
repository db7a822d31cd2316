//! Front ends of mdspace: NBD to engine requests.

pub mod nbd;

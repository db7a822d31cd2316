use std::cell::Cell;

use super::*;

#[test]
fn a_block_device_is_made_with_the_nbd_driver_where_that_is_loaded_else_with_loop() {
    let missing = |what: &str| Err(what.to_owned());
    assert_eq!(best(Ok(()), || Ok(())), Ok(Way::NbdDevice));
    assert_eq!(best(missing("no nbd"), || Ok(())), Ok(Way::Loop));
    let neither = best(missing("no nbd"), || missing("no loop"));
    assert_eq!(neither, missing("no nbd; no loop").map(|()| Way::Loop));
}

#[test]
fn what_is_not_taken_is_not_looked_for() {
    let looked = Cell::new(false);
    let of_loop = || {
        looked.set(true);
        Ok(())
    };
    assert_eq!(best(Ok(()), of_loop), Ok(Way::NbdDevice));
    assert!(!looked.get());
}

#[test]
fn a_socket_and_a_mounted_file_are_no_block_devices() {
    assert_eq!(Way::of(&Endpoint::Fuse("/a".into())), Ok(None));
}

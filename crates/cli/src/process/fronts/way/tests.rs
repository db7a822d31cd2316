use std::cell::Cell;

use super::*;

/// The best of the three, where these are missing.
fn best_without(missing: &[Way]) -> Result<Way, String> {
    let look = |way: Way| match missing.contains(&way) {
        true => Err(format!("no {way:?}")),
        false => Ok(()),
    };
    best([
        (Way::Ublk, &|| look(Way::Ublk)),
        (Way::NbdDevice, &|| look(Way::NbdDevice)),
        (Way::Loop, &|| look(Way::Loop)),
    ])
}

#[test]
fn a_block_device_is_made_with_the_first_driver_that_is_loaded_else_with_loop() {
    assert_eq!(best_without(&[]), Ok(Way::Ublk));
    assert_eq!(best_without(&[Way::Ublk]), Ok(Way::NbdDevice));
    assert_eq!(best_without(&[Way::NbdDevice]), Ok(Way::Ublk));
    assert_eq!(best_without(&[Way::Ublk, Way::NbdDevice]), Ok(Way::Loop));
    let none = best_without(&[Way::Ublk, Way::NbdDevice, Way::Loop]);
    assert_eq!(none, Err("no Ublk; no NbdDevice; no Loop".to_owned()));
}

#[test]
fn what_is_not_taken_is_not_looked_for() {
    let looked = Cell::new(false);
    let of_loop = || {
        looked.set(true);
        Ok(())
    };
    assert_eq!(best([(Way::NbdDevice, &|| Ok(())), (Way::Loop, &of_loop)]), Ok(Way::NbdDevice));
    assert!(!looked.get());
}

#[test]
fn a_socket_and_a_mounted_file_are_no_block_devices() {
    assert_eq!(Way::of(&Endpoint::Fuse("/a".into())), Ok(None));
}

use std::mem::{offset_of, size_of};

use super::*;

#[test]
fn structures_have_the_sizes_of_the_kernels() {
    assert_eq!(size_of::<Control>(), 32);
    assert_eq!(size_of::<DeviceInfo>(), 64);
    assert_eq!(size_of::<BasicParameters>(), 32);
    assert_eq!(size_of::<DiscardParameters>(), 20);
    assert_eq!(size_of::<IoCommand>(), 16);
    assert_eq!(size_of::<Descriptor>(), 24);
    assert_eq!(PARAMETERS_BYTES, 60);
    assert_eq!((offset_of!(DeviceInfo, process), offset_of!(DeviceInfo, mark)), (16, 32));
}

#[test]
fn orders_have_the_numbers_of_the_kernels() {
    // As `_IOWR('u', 0x04, struct ublksrv_ctrl_cmd)` is on this processor.
    assert_eq!(order::ADD, 0xc020_7504);
    assert_eq!(order::DEVICE_INFO, 0x8020_7502);
    assert_eq!(order::FEATURES, 0x8020_7513);
    assert_eq!(io_order::FETCH, 0xc010_7520);
    assert_eq!(io_order::COMMIT_AND_FETCH, 0xc010_7521);
}

#[test]
fn each_queue_has_its_own_descriptors_and_each_request_its_own_data() {
    assert_eq!(descriptors_bytes(128, 4096), 4096);
    assert_eq!(descriptors_bytes(256, 4096), 8192);
    assert_eq!((descriptors_at(0, 4096), descriptors_at(2, 4096)), (0, 2 * 98304));
    assert_eq!(data_at(0, 0), 0x8000_0000);
    assert_eq!(data_at(0, 3), 0x8000_0000 + (3 << 25));
    assert_eq!(data_at(5, 1), 0x8000_0000 + (5 << 41) + (1 << 25));
}

use super::*;

#[test]
fn what_is_missing_comes_with_its_command() {
    let finding = program("no-such-program-anywhere", "apt install it");
    assert!(!finding.ok);
    assert_eq!(finding.cure.as_deref(), Some("apt install it"));
    assert!(program("sh", "").ok);
    assert!(!device("x", "/dev/no-such-device", "modprobe x").ok);
}

#[test]
fn only_what_is_needed_keeps_mdspace_from_serving() {
    let diagnosis = |needed| Diagnosis {
        schema: SCHEMA,
        findings: vec![ok("a", String::new()), lacking("b", String::new(), "", needed)],
    };
    assert!(diagnosis(false).can_serve());
    assert!(!diagnosis(true).can_serve());
}

#[test]
fn every_finding_is_a_line_and_every_cure_another() {
    let diagnosis = Diagnosis::of_this_host();
    let cures = diagnosis.findings.iter().filter(|finding| finding.cure.is_some()).count();
    assert_eq!(diagnosis.text().lines().count(), diagnosis.findings.len() + cures);
    assert!(diagnosis.findings.iter().all(|finding| finding.ok == finding.cure.is_none()));
}

#[test]
fn a_ring_without_room_in_locked_memory_is_no_fault_of_the_kernels_settings() {
    let cure = |kind: io::ErrorKind| cure_of_ring(&kind.into());
    assert!(cure(io::ErrorKind::OutOfMemory).contains("ulimit -l"));
    assert!(cure(io::ErrorKind::PermissionDenied).contains("io_uring_disabled"));
}

use super::*;

/// Those that hang keep a worker each.
#[test]
fn a_ring_has_a_worker_for_every_call_whose_end_it_can_hold() {
    let ring = Ring::new(Entries::MANY, Arc::new(EventFd::new().unwrap())).unwrap();
    let mut workers = [0, 0];
    ring.uring.submitter().register_iowq_max_workers(&mut workers).unwrap();
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is what the call fills.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NPROC, &mut limit) }, 0);
    assert_eq!(u64::from(workers[0]), limit.rlim_cur.min(Entries::MANY.completions.into()));
}

#[test]
fn a_kernel_is_told_by_its_first_two_numbers() {
    let is_new = |release| is_at_least(release, (6, 13));
    assert!(["6.13.0-rc1\n", "6.14-generic", "6.100.2", "7.0.0"].into_iter().all(is_new));
    let old = ["6.1.176\n", "6.8.0-31-generic", "5.15.153", "6", "", "linux"];
    assert!(!old.into_iter().any(is_new));
}

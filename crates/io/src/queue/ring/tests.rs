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

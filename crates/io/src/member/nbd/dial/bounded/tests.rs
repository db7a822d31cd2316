use std::os::unix::net::UnixListener;

use super::*;

#[test]
fn what_comes_after_the_end_of_patience_is_not_read() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(&[1; 8]).unwrap();
    let now = Instant::now();
    let mut bounded = Bounded::new(ours, now + Duration::from_secs(60));
    let mut bytes = [0; 4];
    bounded.read_exact(&mut bytes).unwrap();
    bounded.until = now;
    assert_eq!(bounded.read_exact(&mut bytes).unwrap_err().kind(), io::ErrorKind::TimedOut);
    assert_eq!(bounded.write_all(&bytes).unwrap_err().kind(), io::ErrorKind::TimedOut);
    let mut unbounded = bounded.unbounded().unwrap();
    unbounded.read_exact(&mut bytes).unwrap();
    assert_eq!(unbounded.read_timeout().unwrap(), None);
}

#[test]
fn a_server_that_takes_no_connection_is_not_waited_for_longer_than_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let mut connected = Vec::new();
    let refused = loop {
        match connect_unix(&path, Duration::from_millis(1)) {
            Ok(stream) => connected.push(stream),
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
    assert!(!connected.is_empty());
    drop(listener);
}

use super::super::bed::Flushing;
use super::*;

#[test]
fn what_is_kept_of_a_request_says_what_it_writes_and_whether_that_is_durable_as_the_request_does() {
    let device = Flushing::new(false);
    let buffer = || Buffer::zeroed(1024);
    let source: Rc<dyn Source> = Rc::new(buffer());
    let writes = [
        || WriteFrom::Buffer(Buffer::zeroed(1024), 512..1024),
        || WriteFrom::Shared(Rc::new(Buffer::zeroed(1024)), 0..1024),
    ];
    let mut ops = vec![
        IoOp::Flush,
        IoOp::Discard { sector: 3, sectors: 5 },
        IoOp::Read { sector: 3, into: ReadInto::Buffer(buffer(), 0..512) },
    ];
    for fua in [false, true] {
        ops.push(IoOp::WriteZeroes { sector: 3, sectors: 5, fua });
        ops.extend(writes.iter().map(|from| IoOp::Write { sector: 7, from: from(), fua }));
        let from = WriteFrom::Source(source.clone(), 0..512);
        ops.push(IoOp::Write { sector: 7, from, fua });
        let from = WriteFrom::Gather(vec![(source.clone(), 0..512), (source.clone(), 0..1024)]);
        ops.push(IoOp::Write { sector: 7, from, fua });
    }
    for mut op in ops {
        for remote in [false, true] {
            let said = (written_by(&op), makes_durable(&op));
            let kept = Kept::of(&mut op, remote, &device.lane);
            assert_eq!((kept.written(), kept.makes_durable()), said);
            assert_eq!((written_by(&op), makes_durable(&op)), said);
        }
    }
}

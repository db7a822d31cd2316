//! Workers on threads, over members in memory: where they run, how many, and that nothing is lost
//! while they come and go.

use std::io::Write;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;

use mdspace_engine::array::{Action, Reply};
use mdspace_engine::assembly::Options;
use mdspace_engine::backend::MemberId;
use mdspace_engine::create::{self, Creation, NewDevice};
use mdspace_engine::memory::{Sink, Source};
use mdspace_engine::request::{Queue, Request};
use mdspace_engine::status::SyncAction;
use mdspace_format::placement::BitmapRequest;
use mdspace_format::superblock::{MemberFlags, SetName};
use mdspace_format::{Level, MetadataVersion, Uuid};

use super::*;
use crate::{LanesConfig, OpenMode, RunningArray, Topology};

const BLOCK_BYTES: usize = 4096;

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Two nodes of one CPU each, as far as this machine has two.
fn two_nodes() -> Topology {
    let cpus: Vec<usize> = Topology::of_this_machine().unwrap().nodes.concat();
    Topology { nodes: vec![vec![cpus[0]], vec![cpus[cpus.len() - 1]]] }
}

/// A RAID5 of four members in memory, on two lanes, one a node.
fn array(topology: Topology) -> RunningArray {
    array_of(topology, "ram:4M").0
}

/// As [`array`], of four members of this name.
fn array_of(topology: Topology, member: &str) -> (RunningArray, Vec<MemberId>) {
    let config = LanesConfig { count: 2, topology: Some(topology), ..LanesConfig::default() };
    let lanes = Lanes::start(config).unwrap();
    let open = |_| lanes.members().open(member, OpenMode::RUN).unwrap();
    let devices: Vec<_> = (0..4).map(open).collect();
    let creation = Creation {
        name: SetName::new("workers").unwrap(),
        uuid: Uuid([1; 16]),
        version: MetadataVersion::V1_2,
        level: Level::Raid5,
        layout: 2,
        chunk_sectors: 128,
        raid_disks: 4,
        size_sectors: None,
        data_offset_sectors: None,
        bitmap: BitmapRequest::None,
        assume_clean: true,
        force: false,
        write_behind: 0,
    };
    let slots = devices.iter().map(|(id, info)| {
        Some(NewDevice { id: *id, info: info.clone(), flags: MemberFlags::default() })
    });
    let slots = slots.collect();
    let mut number = 1;
    let uuid = move || {
        number += 1;
        Uuid([number; 16])
    };
    let plan = create::plan(&creation, slots, 1, uuid).unwrap();
    lanes.call(LaneId(0), async move |lane, _| create::write(&lane, &plan).await).unwrap();
    let members = devices.iter().map(|(id, _)| *id).collect();
    let array = RunningArray::assemble(Arc::new(lanes), devices, Options::default());
    (array.unwrap(), members)
}

/// Writes every other block of the array, those of `lane`, all at once, and waits for the ends.
fn write_all(array: &RunningArray, lane: u16, value: u8) {
    let (sender, ended) = channel();
    array.run_on(LaneId(lane), move |port, lane_here, io| {
        let (port, io) = (port.clone(), io.clone());
        lane_here.spawn(async move {
            let queue = Queue::new();
            let blocks = port.sectors() * 512 / BLOCK_BYTES as u64;
            for block in (u64::from(lane)..blocks).step_by(2) {
                let payload = io.payload(BLOCK_BYTES);
                Sink::put(&*payload, 0, &[value ^ block as u8; BLOCK_BYTES]);
                let from: Rc<dyn Source> = payload;
                let sector = block * 8;
                port.submit(&queue, block, Request::Write { sector, from, fua: false });
            }
            while queue.in_flight() > 0 {
                queue.next().await.result.unwrap();
            }
            sender.send(()).unwrap();
        });
    });
    ended.recv_timeout(PATIENCE).expect("every write is answered");
}

/// Reads every block back.
fn verify(array: &RunningArray, values: [u8; 2]) {
    let (sender, wrong) = channel();
    array.run_on(LaneId(0), move |port, lane, io| {
        let (port, io) = (port.clone(), io.clone());
        lane.spawn(async move {
            let mut wrong = Vec::new();
            for block in 0..port.sectors() * 512 / BLOCK_BYTES as u64 {
                let payload = io.payload(BLOCK_BYTES);
                let into: Rc<dyn Sink> = payload.clone();
                port.serve(Request::Read { sector: block * 8, into }).await.unwrap();
                let value = values[block as usize % 2] ^ block as u8;
                if payload.to_vec() != [value; BLOCK_BYTES] {
                    wrong.push(block);
                }
            }
            sender.send(wrong).unwrap();
        });
    });
    assert_eq!(wrong.recv_timeout(PATIENCE).unwrap(), [0; 0], "blocks that differ");
}

/// Runs a check to its end and gives the sectors that do not agree.
fn check(array: &RunningArray) -> u64 {
    array.command(Action::Check).unwrap();
    let until = Instant::now() + PATIENCE;
    loop {
        let Ok(Reply::Status(status)) = array.command(Action::Status) else { panic!("a status") };
        if status.sync.action == SyncAction::Idle && status.sync.last_action == SyncAction::Check {
            return status.mismatch_sectors;
        }
        assert!(Instant::now() < until, "the check goes on for ever");
        std::thread::yield_now();
    }
}

fn end(array: RunningArray) {
    let lanes = array.lanes().clone();
    array.stop().unwrap();
    Arc::into_inner(lanes).unwrap().stop(PATIENCE).unwrap();
}

/// What the worker of each node has done, by node.
fn ios(array: &RunningArray) -> Vec<u64> {
    array.worker_traffic().into_iter().map(|(_, traffic)| traffic.member_ios).collect()
}

#[test]
fn workers_serve_their_own_node_from_its_cpus_with_memory_of_their_own() {
    let topology = two_nodes();
    let array = array(topology.clone());
    array.set("group_thread_cnt", "1").unwrap();
    assert_eq!(array.worker_counts(), WorkerCounts { asked: 1, running: 2 });
    for node in 0..2 {
        let before = ios(&array);
        let until = Instant::now() + PATIENCE;
        while ios(&array)[node] == before[node] {
            assert!(Instant::now() < until, "the worker of node {node} gets nothing");
            write_all(&array, node as u16, 7);
        }
        assert_eq!(
            ios(&array)[1 - node],
            before[1 - node],
            "the other node's worker is left alone"
        );
        let state = array.workers.state.lock();
        let look = |node: usize| {
            let worker = &state.serving[node].thread;
            worker
                .call(|_, io| (crate::lanes::allowed().unwrap(), io.stock().kept_bytes()))
                .unwrap()
        };
        let (cpus, kept) = look(node);
        assert_eq!(cpus, topology.nodes[node]);
        assert!(kept > 0, "what it read old blocks into came from its own stock");
        let (_, others) = look(1 - node);
        assert!(node == 1 || others == 0, "the other node's worker has touched no memory");
    }
    end(array);
}

#[test]
fn no_more_workers_run_than_a_node_has_cpus() {
    let array = array(two_nodes());
    array.set("group_thread_cnt", "8192").unwrap();
    assert_eq!(array.worker_counts(), WorkerCounts { asked: 8192, running: 2 });
    assert!(array.set("group_thread_cnt", "8193").is_err());
    assert_eq!(array.worker_counts(), WorkerCounts { asked: 8192, running: 2 });
    array.set("group_thread_cnt", "0").unwrap();
    assert_eq!(array.worker_counts(), WorkerCounts { asked: 0, running: 0 });
    array.set("group_thread_cnt", "1").unwrap();
    assert_eq!(array.worker_counts().running, 2);
    end(array);
}

#[test]
fn workers_move_to_other_cpus_and_a_list_of_others_is_refused() {
    let topology = two_nodes();
    let array = array(topology.clone());
    array.set("group_thread_cnt", "2").unwrap();
    for bad in ["", "x", "70000", "0-1000", "-1"] {
        let refused = array.set("worker_cpus", bad).unwrap_err().to_string();
        assert!(refused.contains("a list of CPUs among"), "{bad}: {refused}");
    }
    assert!(array.setting_values().contains(&("worker_cpus", "all".to_owned())));
    let cpu = topology.nodes[0][0].to_string();
    array.set("worker_cpus", &cpu).unwrap();
    assert!(array.setting_values().contains(&("worker_cpus", cpu)));
    let nodes: Vec<_> =
        array.workers.state.lock().serving.iter().map(|worker| worker.node).collect();
    assert!(nodes.contains(&0), "{nodes:?}");
    array.set("worker_cpus", "all").unwrap();
    assert_eq!(array.worker_counts().running, 2);
    end(array);
}

#[test]
fn a_worker_moves_to_other_cpus_of_its_node() {
    let nodes = vec![two_nodes().nodes.concat()];
    let cpus = nodes[0].clone();
    let array = array(Topology { nodes });
    array.set("group_thread_cnt", "1").unwrap();
    for cpu in cpus {
        array.set("worker_cpus", &cpu.to_string()).unwrap();
        let state = array.workers.state.lock();
        let is_on = state.serving[0].thread.call(|_, _| crate::lanes::allowed().unwrap());
        assert_eq!(is_on, Some(vec![cpu]));
    }
    end(array);
}

#[test]
fn nothing_is_lost_while_workers_come_and_go_under_writes() {
    let array = Arc::new(array(two_nodes()));
    let writers: Vec<_> = (0..2)
        .map(|lane| {
            let array = array.clone();
            std::thread::spawn(move || {
                for value in 0..12 {
                    write_all(&array, lane, value);
                }
            })
        })
        .collect();
    let mut turn = 0;
    while !writers.iter().all(|writer| writer.is_finished()) {
        turn += 1;
        array.set("group_thread_cnt", ["1", "0", "2"][turn % 3]).unwrap();
        array.set("max_stripe_batch", ["1", "32", "256", "7"][turn % 4]).unwrap();
        array.set("stripe_cache_size", ["17", "256", "4096"][turn / 2 % 3]).unwrap();
    }
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    verify(&array, [11, 11]);
    assert_eq!(check(&array), 0);
    end(Arc::into_inner(array).unwrap());
}

/// A worker that leaves lets go of what it met, and of nothing that the lanes use.
#[test]
fn workers_that_leave_close_no_multipath_device() {
    let mut table = tempfile::NamedTempFile::new().unwrap();
    table.write_all(b"[[group]]\n[[group.path]]\nmember = \"ram:4M\"\n").unwrap();
    let (array, members) = array_of(two_nodes(), &format!("multipath:{}", table.path().display()));
    array.set("group_thread_cnt", "1").unwrap();
    let until = Instant::now() + PATIENCE;
    while ios(&array).contains(&0) {
        assert!(Instant::now() < until, "a worker gets nothing");
        (0..2).for_each(|lane| write_all(&array, lane, 7));
    }
    array.set("group_thread_cnt", "0").unwrap();
    // Its path comes back, for somebody looks after it still.
    for member in members {
        let paths = array.lanes().members().paths(member).unwrap();
        for word in ["fail_path", "reinstate_path"] {
            paths.message(&[word, "ram:4M"], crate::clock::now()).unwrap();
        }
    }
    (0..2).for_each(|lane| write_all(&array, lane, 9));
    verify(&array, [9, 9]);
    end(array);
}

/// It stays as long as a member owes it an answer.
#[test]
fn a_worker_that_leaves_is_asked_until_its_thread_has_ended() {
    let array = array(two_nodes());
    let may_end = Arc::new(AtomicBool::new(false));
    let order = may_end.clone();
    let work = move |lane: &Rc<Lane>| {
        let lane = lane.clone();
        async move {
            while !order.load(Ordering::Acquire) {
                lane.sleep_until(lane.backend().now() + Duration::from_millis(1)).await;
            }
        }
    };
    let (id, node) = (LaneId(2), 0);
    let thread = array.lanes().start_worker(&array.array, id, node, Vec::new(), work).unwrap();
    let worker = Arc::new(Worker { id, node, thread });
    array.workers.state.lock().leaving.push(Leaving { worker, awaited_until: Instant::now() });
    array.set("max_stripe_batch", "7").unwrap();
    let asked = || array.workers.ask(Lane::id);
    assert_eq!(asked(), [(id, id)]);
    may_end.store(true, Ordering::Release);
    let until = Instant::now() + PATIENCE;
    while !asked().is_empty() {
        assert!(Instant::now() < until, "it stays");
    }
    assert_eq!(array.workers.state.lock().leaving.len(), 1, "nobody has looked for it");
    end(array);
}

#[test]
fn cpus_are_shown_in_the_kernels_notation() {
    assert_eq!(show(vec![11, 0, 1, 2, 8, 10]), "0-2,8,10-11");
    assert_eq!(show(vec![3]), "3");
    assert_eq!(show(Vec::new()), "");
}

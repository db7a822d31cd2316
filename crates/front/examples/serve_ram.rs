//! Makes an array of memory and serves it, until a line or the end of the input comes:
//!
//! ```text
//! cargo run --release -p mdspace-front --example serve_ram -- 6 6 256M nbd:unix:/tmp/array.sock
//! fio --name=try --ioengine=nbd --uri='nbd+unix:///?socket=/tmp/array.sock' --rw=randwrite --bs=4k --iodepth=32
//! ```
//!
//! Arguments: level, number of members, size of each, address, and the number of lanes (1).

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use mdspace_engine::array::{Action, Reply};
use mdspace_engine::assembly::Options;
use mdspace_engine::create::{self, Creation, NewDevice};
use mdspace_engine::lane::LaneId;
use mdspace_format::Level;
use mdspace_format::superblock::{MemberFlags, SetName};
use mdspace_front::Address;
use mdspace_front::listener::Listener;
use mdspace_front::nbd::{Export, Exports, Server, ServerLimits};
use mdspace_io::{Lanes, LanesConfig, OpenMode, RunningArray};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [level, members, size, address, lanes @ ..] = &words[..] else {
        return Err("give LEVEL MEMBERS SIZE ADDRESS [LANES]".into());
    };
    let count = lanes.first().map_or(Ok(1), |lanes| lanes.parse())?;
    let lanes = Arc::new(Lanes::start(LanesConfig { count, ..LanesConfig::default() })?);
    let level = Level::from_number(level.parse()?).ok_or("no such level")?;
    let array = make_array(&lanes, level, members.parse()?, size)?;
    let Ok(Reply::Status(status)) = array.command(Action::Status) else {
        return Err("the array does not answer".into());
    };
    let exports = Exports::new(vec![Export::of_array("ram", &status)])?;
    let listener = Listener::bind(&Address::parse(address)?)?;
    let server = Server::start(listener, exports, ServerLimits::default(), &array);
    println!("{} bytes at {}", status.size_sectors * 512, server.address());

    std::io::stdin().read_line(&mut String::new())?;
    server.close(Duration::from_secs(10))?;
    array.stop()?;
    Ok(())
}

fn make_array(
    lanes: &Arc<Lanes>,
    level: Level,
    members: u16,
    size: &str,
) -> Result<RunningArray, Box<dyn Error>> {
    let mut devices = Vec::new();
    for _ in 0..members {
        let (id, info) = lanes.members().open(&format!("ram:{size}"), OpenMode::RUN)?;
        devices.push(NewDevice { id, info, flags: MemberFlags::default() });
    }
    let creation = Creation::new(SetName::new("ram")?, level, members);
    let creation = Creation { assume_clean: true, ..creation };
    let places = devices.iter().cloned().map(Some).collect();
    lanes.call(LaneId(0), async move |lane, _| create::make(&lane, creation, places).await)?;
    let members = devices.into_iter().map(|device| (device.id, device.info)).collect();
    Ok(RunningArray::assemble(lanes.clone(), members, Options::default())?)
}

//! The verbs, one file each. A verb returns its exit code, or says why it failed.

use std::process::ExitCode;

use crate::args::create::allowed;
use crate::args::{ArrayName, Verb};
use crate::control::client::Client;
use crate::control::{Reply, Request};
use crate::failure::Failure;
use crate::output;
use crate::process::fronts::{broker, mount_guard, opener, tuning};
use crate::run_dir::RunDir;

mod action;
mod arrival;
mod bench;
mod create;
mod detail;
mod doctor;
mod events;
mod examine;
mod explain;
mod help;
mod mdstat;
mod members;
mod message;
mod release;
mod save;
mod scan;
mod settings;
mod stop;
mod unit;
mod wait;
mod zero_superblock;

/// Exit code of a verb that did its work and says so by it.
type Outcome = Result<ExitCode, Failure>;

/// Runs one verb.
pub(crate) fn run(verb: Verb) -> Outcome {
    match verb {
        Verb::Create(args) => create::create(args),
        Verb::Assemble(args) => create::assemble(args),
        Verb::Stop(args) => stop::run(&args),
        Verb::Restart(args) => save::restart(&args),
        Verb::Save(args) => save::run(&args),
        Verb::Release(args) => release::run(&args.name),
        Verb::Detail(args) => detail::run(&args),
        Verb::Mdstat => mdstat::run(),
        Verb::Add(args) => members::add(&args),
        Verb::ReAdd(args) => members::re_add(&args),
        Verb::Remove(args) => members::remove(&args),
        Verb::Fail(args) => members::fail(&args),
        Verb::Replace(args) => members::replace(&args),
        Verb::Examine(args) => examine::run(&args),
        Verb::Explain(args) => explain::run(&args),
        Verb::ZeroSuperblock(args) => zero_superblock::run(&args),
        Verb::Readonly(args) => ask(&args.name, &Request::Readonly),
        Verb::Readwrite(args) => ask(&args.name, &Request::Readwrite),
        Verb::AcceptDoubt(args) => ask(&args.name, &Request::AcceptDoubt),
        Verb::Wait(args) => wait::run(&args.name),
        Verb::Action(args) => action::run(&args),
        Verb::Get(args) => settings::get(&args),
        Verb::Set(args) => settings::set(&args),
        Verb::Events(args) => events::run(&args),
        Verb::Serve(args) => {
            let front = allowed(&args.at.front, args.insecure).to_string();
            ask(&args.at.name, &Request::Serve { front })
        }
        Verb::Unserve(args) => {
            let (front, force) = (args.at.front.to_string(), args.force);
            ask(&args.at.name, &Request::Unserve { front, force })
        }
        Verb::Multipath(args) => create::multipath(&args),
        Verb::Message(args) => message::run(&args),
        Verb::Bench(mut args) => bench::run(&mut args),
        Verb::Demo(args) => crate::demo::run(args.from).map(|()| ExitCode::SUCCESS),
        Verb::Doctor(args) => doctor::run(&args),
        Verb::Completions(args) => help::completions(args.shell),
        Verb::Man => help::man(),
        Verb::Help(args) => help::run(&args),
        Verb::ServingProcess { run_dir, words } => create::serving_process(&run_dir, words),
        Verb::DeviceOpener { name, device, identity } => {
            Ok(opener::run(name, &device, &identity.into()))
        }
        Verb::Broker { address, rendezvous, log } => Ok(broker::run(&address, &rendezvous, log)),
        Verb::DeviceTuner { device } => Ok(tuning::run(&device)),
        Verb::MountGuard { directory, id, link } => Ok(mount_guard::run(directory, id, &link)),
    }
}

/// Asks a running array for something that ends with "done", and prints its notes.
fn ask(name: &ArrayName, request: &Request) -> Outcome {
    output::end(&done(name, request)?, Ok(()))
}

/// Asks a running array for something that ends with "done"; gives its lines for the user.
fn done(name: &ArrayName, request: &Request) -> Result<Vec<String>, Failure> {
    let mut client = Client::connect(&RunDir::open_of(name)?, name)?;
    match client.ask(request)? {
        Reply::Done { notes } => Ok(notes),
        _ => Ok(Vec::new()),
    }
}

//! NBD over TLS, with the clients that users have.

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use crate::certificates::Authority;
use crate::harness::{Images, MIB, Mdspace, Pattern, SECTOR, Tools, path_text};

/// A RAID5 of three files, served over TLS at a port of this host.
struct Served {
    images: Images,
    mdspace: Mdspace,
    authority: Authority,
    port: u16,
    bytes: u64,
}

impl Served {
    fn start() -> Self {
        let (images, mdspace) = (Images::new(), Mdspace::new());
        let authority = Authority::new("ours");
        let (server, client) = (images.folder().join("server"), images.folder().join("client"));
        authority.write(&server);
        authority.write_server(&server);
        authority.write(&client);
        authority.write_client(&client);
        let members = images.sparse("m", 3, 18 * MIB);
        let serve = format!("--serve=nbd:tcp:0?tls={}", path_text(&server));
        let mut arguments = vec!["create", "served", "--level=5", "--raid-devices=3"];
        arguments.extend(["--size=16M", "--run", &serve]);
        arguments.extend(members.iter().map(|path| path_text(path)));
        mdspace.succeed(&arguments);
        let port = port_of(&mdspace, 0);
        Self { images, mdspace, authority, port, bytes: 32 * MIB }
    }

    fn folder(&self, name: &str) -> PathBuf {
        self.images.folder().join(name)
    }

    /// By which libnbd reaches it with the certificates of a folder.
    fn uri(&self, folder: &str) -> String {
        let folder = self.folder(folder);
        format!("nbds://localhost:{}/?tls-certificates={}", self.port, path_text(&folder))
    }

    /// Runs one of the clients to its end.
    fn client(&self, program: &str, arguments: &[&str]) -> Output {
        let mut command = Tools::find().command(program);
        let run = command.args(arguments).current_dir(self.images.folder()).output();
        run.unwrap_or_else(|error| panic!("{program} starts: {error}"))
    }

    /// Runs a client that must succeed; returns what it printed.
    fn succeed(&self, program: &str, arguments: &[&str]) -> String {
        let Output { status, stdout, stderr } = self.client(program, arguments);
        let (out, err) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        assert!(status.success(), "{program} {arguments:?}: {status}\n{out}{err}");
        out.into_owned()
    }

    /// Runs a client that must fail.
    fn refused(&self, program: &str, arguments: &[&str]) {
        let output = self.client(program, arguments);
        assert!(!output.status.success(), "{program} {arguments:?} is served");
    }
}

/// The port of a front that the system has chosen.
fn port_of(mdspace: &Mdspace, front: usize) -> u16 {
    let report = mdspace.report("served");
    let address = report["fronts"][front]["address"].as_str().expect("an address");
    let place = address.split('?').next().and_then(|place| place.strip_prefix("nbd:tcp:"));
    place.expect("a port").parse().expect("a number")
}

#[test]
fn nbdinfo_nbdcopy_and_qemu_use_an_array_over_tls() {
    let served = Served::start();
    let uri = served.uri("client");
    let printed = served.succeed("nbdinfo", &["--json", &uri]);
    let info: serde_json::Value = serde_json::from_str(&printed).expect("nbdinfo prints JSON");
    assert_eq!(info["TLS"], true, "{printed}");
    assert_eq!(info["exports"][0]["export-size"], served.bytes);
    let listed = served.succeed("nbdinfo", &["--list", &uri]);
    assert!(listed.contains("export=\"served\""), "{listed}");

    let (there, back) = (served.folder("there"), served.folder("back"));
    Pattern { seed: 5 }.write_file(&there, served.bytes / SECTOR as u64, 1);
    served.succeed("nbdcopy", &["--flush", "--connections=4", path_text(&there), &uri]);
    served.succeed("nbdcopy", &[&uri, path_text(&back)]);
    assert!(fs::read(there).expect("a file") == fs::read(back).expect("a file"), "copies differ");

    let client = served.folder("client");
    let object = format!("tls-creds-x509,id=tls,endpoint=client,dir={}", path_text(&client));
    let image = format!("driver=nbd,host=localhost,port={},tls-creds=tls", served.port);
    let commands = ["-c", "write -P 7 0 1M", "-c", "read -P 7 0 1M", "-c", "write -z 1M 2M"];
    let opened = ["--object", &object, "--image-opts", &image];
    served.succeed("qemu-io", &[&opened[..], &commands].concat());

    let report = served.mdspace.report("served");
    assert_eq!(report["fronts"][0]["uri"], format!("nbds://localhost:{}", served.port));
    assert_eq!(served.mdspace.check("served"), 0);
    served.mdspace.succeed(&["stop", "served"]);
}

#[test]
fn who_cannot_say_who_it_is_is_served_nothing() {
    let served = Served::start();
    // Trusts the server, and has no certificate.
    served.authority.write(&served.folder("nobody"));
    served.refused("nbdinfo", &[&served.uri("nobody")]);
    // Trusts the server, and was signed by others.
    served.authority.write(&served.folder("stranger"));
    Authority::new("others").write_client(&served.folder("stranger"));
    served.refused("nbdinfo", &[&served.uri("stranger")]);
    // Has a certificate, and does not trust the server.
    served.authority.write_client(&served.folder("distrustful"));
    Authority::new("others").write(&served.folder("distrustful"));
    served.refused("nbdinfo", &[&served.uri("distrustful")]);
    // Has no TLS; lists are as closed as the array is.
    let plain = format!("nbd://localhost:{}", served.port);
    served.refused("nbdinfo", &[&plain]);
    served.refused("nbdinfo", &["--list", &plain]);
    served.succeed("nbdinfo", &[&served.uri("client")]);
    served.mdspace.succeed(&["stop", "served"]);
}

#[test]
fn a_client_that_wants_tls_does_not_go_on_without() {
    let served = Served::start();
    served.mdspace.succeed(&["serve", "served", "nbd:tcp:0"]);
    let plain = Served { port: port_of(&served.mdspace, 1), ..served };
    plain.refused("nbdinfo", &[&plain.uri("client")]);
    plain.succeed("nbdinfo", &[&format!("nbd://localhost:{}", plain.port)]);
    plain.mdspace.succeed(&["stop", "served"]);
}

#[test]
fn without_its_files_nothing_is_written_and_the_cure_is_named() {
    let (images, mdspace) = (Images::new(), Mdspace::new());
    let members = images.sparse("m", 2, 18 * MIB);
    let members: Vec<&str> = members.iter().map(|path| path_text(path)).collect();
    let folder = images.folder().join("pki");
    let create = |front: &str| {
        let serve = format!("--serve={front}tls={}", path_text(&folder));
        let fixed = ["create", "served", "--level=1", "--raid-devices=2", "--run", &serve];
        mdspace.run(&[&fixed[..], &members].concat())
    };
    let untouched = || {
        for member in &members {
            let bytes = fs::read(member).expect("a file");
            assert!(bytes.iter().all(|byte| *byte == 0), "{member} was written to");
        }
    };
    let authority = Authority::new("ours");
    authority.write_server(&folder);
    fs::remove_file(folder.join("server-key.pem")).expect("removed");
    let done = create("nbd:tcp:0?");
    assert!(done.status != 0 && done.err.contains("server-key.pem is not there"), "{done:?}");
    assert!(done.err.contains("openssl"), "{done:?}");
    untouched();

    // Other machines reach it, and nobody is asked.
    authority.write_server(&folder);
    let done = create("nbd:tcp:0.0.0.0:0?");
    assert!(done.status != 0 && done.err.contains("ca-cert.pem"), "{done:?}");
    untouched();

    authority.write(&folder);
    let done = create("nbd:tcp:0.0.0.0:0?");
    assert_eq!(done.status, 0, "who is asked for a certificate needs no --insecure: {done:?}");
    mdspace.succeed(&["stop", "served"]);
}

//! The lines by which clients reach the fronts of an array, ready to be pasted.

use std::fmt::{self, Write as _};
use std::path::Path;

use mdspace_front::address::{Address, Endpoint, Socket};

use crate::explain::shell_word;
use crate::report::FrontReport;

/// For each front, what its clients are told.
pub(crate) fn text(name: &str, fronts: &[FrontReport]) -> String {
    let mut out = String::new();
    write_all(&mut out, name, fronts).expect("a String takes all that is written");
    out
}

fn write_all(out: &mut String, name: &str, fronts: &[FrontReport]) -> fmt::Result {
    if fronts.is_empty() {
        writeln!(out, "{name} has no front: `mdspace serve {name} block` opens one")?;
    }
    for (index, front) in fronts.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        writeln!(out, "{}", front.address)?;
        for (what, lines) in lines(name, front) {
            writeln!(out, "  {what}:")?;
            lines.iter().try_for_each(|line| writeln!(out, "    {line}"))?;
        }
    }
    Ok(())
}

/// What they are for, and the lines.
type Lines = (&'static str, Vec<String>);

fn lines(name: &str, front: &FrontReport) -> Vec<Lines> {
    let Ok(address) = front.address.parse::<Address>() else { return Vec::new() };
    match &address.endpoint {
        Endpoint::Nbd(socket) => of_nbd(name, socket, front.uri.as_deref().unwrap_or_default()),
        Endpoint::VhostUser(path) => of_vhost_user(name, path),
        Endpoint::Fuse(directory) => of_file(name, &directory.join(name)),
        _ => of_device(name),
    }
}

fn of_nbd(name: &str, socket: &Socket, uri: &str) -> Vec<Lines> {
    let (server, host) = match socket {
        Socket::Unix(path) => {
            let path = path.display().to_string();
            (
                format!("server.type=unix,server.path={}", in_option(&path)),
                format!("<host transport='unix' socket='{}'/>", in_xml(&path)),
            )
        }
        Socket::Tcp { host, port, .. } => {
            let host = host.as_deref().unwrap_or("localhost");
            (
                format!("server.type=inet,server.host={host},server.port={port}"),
                format!("<host name='{}' port='{port}'/>", in_xml(host)),
            )
        }
    };
    let is_tls = matches!(socket, Socket::Tcp { tls: Some(_), .. });
    let certificates = if is_tls { ",tls-creds=tls" } else { "" };
    let block = shell_word(&format!(
        "driver=nbd,node-name={name},{server},export={name},reconnect-delay=60{certificates}"
    ));
    let mut qemu = vec![format!("-blockdev {block} -device virtio-blk-pci,drive={name}")];
    if is_tls {
        qemu.insert(0, "-object tls-creds-x509,id=tls,endpoint=client,dir=DIR".to_owned());
    }
    let tls = if is_tls { " tls='yes'" } else { "" };
    let libvirt = vec![
        "<disk type='network' device='disk'>".to_owned(),
        "  <driver name='qemu' type='raw'/>".to_owned(),
        format!(
            "  <source protocol='nbd' name='{name}'{tls}>{host}<reconnect delay='60'/></source>"
        ),
        "  <target dev='vdb' bus='virtio'/>".to_owned(),
        "</disk>".to_owned(),
    ];
    vec![("URI", vec![uri.to_owned()]), ("QEMU", qemu), ("libvirt", libvirt)]
}

fn of_vhost_user(name: &str, path: &Path) -> Vec<Lines> {
    let socket = path.display().to_string();
    let chardev = shell_word(&format!("socket,id={name},path={},reconnect=1", in_option(&socket)));
    let qemu = vec![
        "-object memory-backend-memfd,id=mem,size=SIZE,share=on -machine q35,memory-backend=mem"
            .to_owned(),
        format!("-chardev {chardev} -device vhost-user-blk-pci,chardev={name}"),
    ];
    let libvirt = vec![
        "<memoryBacking><source type='memfd'/><access mode='shared'/></memoryBacking>".to_owned(),
        "<disk type='vhostuser' device='disk'>".to_owned(),
        "  <driver name='qemu' type='raw'/>".to_owned(),
        format!(
            "  <source type='unix' path='{}'><reconnect enabled='yes' timeout='1'/></source>",
            in_xml(&socket)
        ),
        "  <target dev='vdb' bus='virtio'/>".to_owned(),
        "</disk>".to_owned(),
    ];
    vec![("QEMU", qemu), ("libvirt", libvirt)]
}

fn of_file(name: &str, file: &Path) -> Vec<Lines> {
    let file = file.display().to_string();
    let block = shell_word(&format!(
        "driver=file,node-name={name},filename={},aio=native,cache.direct=on",
        in_option(&file)
    ));
    let qemu = vec![format!("-blockdev {block} -device virtio-blk-pci,drive={name}")];
    vec![("file", vec![file]), ("QEMU", qemu)]
}

/// systemd learns the device's name from udev's rule.
fn of_device(name: &str) -> Vec<Lines> {
    let device = format!("/dev/mdspace/{name}");
    let fstab = vec![format!(
        "{device} /srv/{name} auto nofail,x-systemd.requires=mdspace@{name}.service 0 2"
    )];
    // One command, for what is pasted keeps its indentation.
    let unit = vec![
        "printf '%s\\n' \\".to_owned(),
        format!("  '[Unit]' Requires=mdspace@{name}.service After=mdspace@{name}.service \\"),
        format!("  '[Mount]' What={device} Where=/srv/{name} \\"),
        format!("  '[Install]' WantedBy=mdspace@{name}.service \\"),
        format!("  >\"/etc/systemd/system/$(systemd-escape -p --suffix=mount /srv/{name})\""),
    ];
    let qemu =
        format!("driver=host_device,node-name={name},filename={device},aio=native,cache.direct=on");
    let qemu = format!("-blockdev {} -device virtio-blk-pci,drive={name}", shell_word(&qemu));
    vec![("device", vec![device]), ("fstab", fstab), ("mount unit", unit), ("QEMU", vec![qemu])]
}

/// A value of an option of QEMU's.
fn in_option(text: &str) -> String {
    text.replace(',', ",,")
}

/// An attribute's value.
fn in_xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('\'', "&apos;")
}

#[cfg(test)]
mod tests;

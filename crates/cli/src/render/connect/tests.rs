use super::*;

fn told(address: &str, uri: Option<&str>) -> String {
    let (address, uri) = (address.to_owned(), uri.map(str::to_owned));
    text("data", &[FrontReport { address, device: None, uri, clients: Vec::new() }])
}

#[test]
fn clients_of_nbd_get_server_and_export() {
    let text = told("nbd:unix:/run/d.sock", Some("nbd+unix:///?socket=/run/d.sock"));
    for words in [
        "URI:\n    nbd+unix:///?socket=/run/d.sock\n",
        "-blockdev driver=nbd,node-name=data,server.type=unix,server.path=/run/d.sock,export=data",
        "<source protocol='nbd' name='data'><host transport='unix' socket='/run/d.sock'/>",
    ] {
        assert!(text.contains(words), "without {words:?}:\n{text}");
    }
    let text = told("nbd:tcp:store:10809?tls=/etc/pki", Some("nbds://store:10809"));
    for words in ["tls-creds=tls", "endpoint=client", "name='data' tls='yes'", "port='10809'"] {
        assert!(text.contains(words), "without {words:?}:\n{text}");
    }
}

#[test]
fn a_machine_gets_shared_memory_and_connects_again() {
    let text = told("vhost-user:/run/a b.sock", None);
    for words in [
        "memory-backend-memfd",
        "-chardev 'socket,id=data,path=/run/a b.sock,reconnect=1' ",
        "<source type='unix' path='/run/a b.sock'><reconnect enabled='yes'",
    ] {
        assert!(text.contains(words), "without {words:?}:\n{text}");
    }
}

#[test]
fn devices_are_mounted_after_their_array_has_started() {
    for way in ["block", "loop", "nbd-device"] {
        let text = told(way, None);
        assert!(text.contains("x-systemd.requires=mdspace@data.service"), "{text}");
        assert!(text.contains("'[Unit]' Requires=mdspace@data.service After="), "{text}");
    }
    assert!(told("fuse:/srv/d", None).contains("filename=/srv/d/data"));
    assert!(text("data", &[]).contains("mdspace serve data block"));
}

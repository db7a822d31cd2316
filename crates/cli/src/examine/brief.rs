use mdspace_format::Superblock;

use mdspace_io::name_of_path;

use super::ExaminedMember;
use crate::output::printable;

/// One ARRAY line for each array, in the order in which their first members are given.
pub(super) fn describe(members: &[ExaminedMember], verbose: bool) -> String {
    let mut arrays: Vec<Vec<&ExaminedMember>> = Vec::new();
    for member in members {
        let same = |array: &&mut Vec<&ExaminedMember>| is_same(array[0], member);
        match arrays.iter_mut().find(same) {
            Some(array) => array.push(member),
            None => arrays.push(vec![member]),
        }
    }
    arrays.iter().map(|members| array(members, verbose)).collect()
}

/// mdadm's test: the identity and shape of the array are equal.
fn is_same(one: &ExaminedMember, other: &ExaminedMember) -> bool {
    let shape = |superblock: &Superblock| {
        let Superblock { ctime, level, layout, size_sectors, chunk_sectors, raid_disks, .. } =
            *superblock;
        (superblock.set_uuid, ctime, level, layout, size_sectors, chunk_sectors, raid_disks)
    };
    shape(&one.superblock) == shape(&other.superblock)
}

fn array(members: &[&ExaminedMember], verbose: bool) -> String {
    let superblock = &members[0].superblock;
    let name = printable(&superblock.set_name.to_string());
    let mut out = "ARRAY ".to_owned();
    if !name.is_empty() {
        let file =
            printable(&superblock.set_name.short()).replace([' ', '\t'], "_").replace('/', "-");
        out += &format!("/dev/md/{file} ");
    }
    if verbose {
        out += &format!(" level={}", superblock.level);
    }
    out += &format!(" metadata={} ", superblock.place.version);
    if verbose {
        out += &format!("num-devices={} ", superblock.raid_disks);
    }
    out += &format!("UUID={}", superblock.set_uuid);
    if !name.is_empty() {
        out += &format!(" name={}", quoted(&name));
    }
    out.push('\n');
    let spares = members.iter().filter(|member| !member.is_in_sync()).count();
    let devices: Vec<_> = members.iter().map(|m| printable(&name_of_path(&m.path))).collect();
    if spares > 0 {
        out += &format!("   spares={spares}");
    }
    if verbose {
        out += &format!("   devices={}", devices.join(","));
    }
    if spares > 0 || verbose {
        out.push('\n');
    }
    out
}

/// In quotes if mdadm.conf needs them.
fn quoted(name: &str) -> String {
    match name {
        _ if name.contains('"') => format!("'{name}'"),
        _ if name.contains([' ', '\t', '\'']) => format!("\"{name}\""),
        _ => name.to_owned(),
    }
}

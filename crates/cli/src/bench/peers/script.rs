//! What the guest measures.

use super::{Load, RANDOM_READ, SELECTORS, SHAPES, Shape, multipath_name};
use crate::bench::workload::parse;

/// In the guest's functions.
pub(super) fn script() -> String {
    let shapes: String = SHAPES.iter().map(shape_text).collect();
    let paths = SELECTORS.map(|selector| {
        format!("multipath {selector} '{}' {RANDOM_READ}\n", multipath_name(selector))
    });
    paths.concat() + &shapes
}

/// One array's part of the script: healthy loads, a check, degraded loads, a rebuild.
fn shape_text(shape: &Shape) -> String {
    let args = parse(shape.array);
    let chunk = if args.level.has_chunks() { "512" } else { "" };
    let mut text = format!("array {} {} {chunk}\n", args.level.number(), args.raid_devices);
    let load = |load: &Load| format!("load '{}, {}' {}\n", shape.name, load.name, load.words);
    let (healthy, degraded): (Vec<&Load>, Vec<&Load>) =
        shape.loads.iter().partition(|load| load.lost.is_empty());
    text.extend(healthy.into_iter().map(load));
    if !degraded.is_empty() {
        text += "sync_speed check check\n";
        text += "lose /dev/ram1\n";
        text.extend(degraded.into_iter().map(load));
        text += "remove /dev/ram1; sync_speed rebuild back /dev/ram1\n";
    }
    text + "gone\n"
}

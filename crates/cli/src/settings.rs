//! md's sysfs files of an array, under their names: what `get` prints, but for those that the engine
//! keeps itself.

use crate::report::{ArrayReport, SyncReport};

/// Every key with its value, in the order in which `get` lists them.
pub(crate) fn values(array: &ArrayReport) -> Vec<(String, String)> {
    let sync = &array.sync;
    let mut values = vec![
        ("array_state", array.array_state.clone()),
        ("level", array.level.clone()),
        ("layout", array.layout_number.to_string()),
        ("raid_disks", array.raid_disks.to_string()),
        ("chunk_size", array.chunk_bytes.to_string()),
        ("component_size", (array.member_bytes / 1024).to_string()),
        ("array_size", (array.size_bytes / 1024).to_string()),
        ("metadata_version", array.metadata.clone()),
        ("uuid", dashed(&array.uuid)),
        ("degraded", array.degraded.to_string()),
        ("consistency_policy", array.consistency_policy.clone()),
        ("sync_action", sync.action.clone()),
        ("last_sync_action", sync.last_action.clone()),
        ("sync_completed", completed(sync)),
        ("sync_speed", if sync.runs() { sync.speed_kib_s.to_string() } else { "none".into() }),
        ("mismatch_cnt", array.mismatch_cnt.to_string()),
    ];
    if let Some(bitmap) = &array.bitmap {
        values.push(("bitmap/chunksize", bitmap.chunk_bytes.to_string()));
        let backlog = array.write_behind.map_or(0, |behind| behind.limit);
        values.push(("bitmap/backlog", backlog.to_string()));
    }
    values.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn completed(sync: &SyncReport) -> String {
    match sync.runs() {
        true if sync.delayed => "delayed".into(),
        true => format!("{} / {}", sync.completed_sectors, sync.total_sectors),
        false => "none".into(),
    }
}

/// A UUID as sysfs has it: 8-4-4-4-12.
pub(crate) fn dashed(uuid: &str) -> String {
    let digits: Vec<char> = uuid.chars().filter(char::is_ascii_hexdigit).collect();
    let mut groups = Vec::new();
    let mut rest = digits.as_slice();
    for length in [8, 4, 4, 4, 12] {
        let (group, others) = rest.split_at(length.min(rest.len()));
        groups.push(group.iter().collect::<String>());
        rest = others;
    }
    groups.join("-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::examples;

    fn value(array: &ArrayReport, key: &str) -> String {
        let found = values(array).into_iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value).expect("a known key")
    }

    #[test]
    fn the_values_are_in_sysfs_units() {
        let array = examples::rebuilding_raid6().array;
        assert_eq!(value(&array, "component_size"), "102400");
        assert_eq!(value(&array, "chunk_size"), "524288");
        assert_eq!(value(&array, "uuid"), "01234567-89ab-cdef-0123-456789abcdef");
        assert_eq!(value(&array, "sync_completed"), "51200 / 204800");
        assert_eq!(value(&array, "degraded"), "2");
        assert_eq!(value(&examples::clean_raid6().array, "sync_completed"), "none");
    }
}

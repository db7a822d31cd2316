//! `mdspace detail --export`: `KEY=value` lines under mdadm's names, for scripts and udev rules.

use crate::report::Report;

/// The whole text.
pub(crate) fn text(report: &Report) -> String {
    let array = &report.array;
    let mut lines = vec![
        format!("MD_LEVEL={}", array.level),
        format!("MD_DEVICES={}", array.raid_disks),
        format!("MD_METADATA={}", array.metadata),
        format!("MD_UUID={}", array.uuid),
        format!("MD_DEVNAME={}", report.name),
        format!("MD_NAME={}", array.name),
    ];
    for member in &array.members {
        let key: String = member
            .member
            .trim_start_matches("/dev/")
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
            .collect();
        let role = member.slot.map_or_else(|| "spare".to_owned(), |slot| slot.to_string());
        lines.push(format!("MD_DEVICE_{key}_ROLE={role}"));
        lines.push(format!("MD_DEVICE_{key}_DEV={}", member.member));
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests;

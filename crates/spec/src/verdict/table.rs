//! Every case of the verdict as text: the engine's is held to it.

use super::Slot::{self, Bad, Gone, Healed, Kept, Out, Refused, Took, Unfilled};
use super::{Column, Credulous, Level, Outcome, Verdict};

const ENDS: [Slot; 7] = [Took, Healed, Unfilled, Refused, Bad, Gone, Out];
const OTHERS: [Slot; 8] = [Kept, Took, Healed, Unfilled, Refused, Bad, Gone, Out];

/// A line a case, tab-separated: level, the slots (a mirror's two copies; the written block, the other
/// block and P), doubt, verdict.
pub(crate) fn table() -> Vec<String> {
    let mut lines = Vec::new();
    for in_doubt in [false, true] {
        for (number, first) in ENDS.into_iter().enumerate() {
            for second in ENDS.into_iter().skip(number) {
                let verdict = verdict(Level::Mirror, &[first, second], 1, in_doubt, true);
                let doubt = if in_doubt { "doubt" } else { "-" };
                let (first, second) = (word(first), word(second));
                let verdict = words(&["A", "B"], &verdict);
                lines.push(format!("mirror\t{first}\t{second}\t-\t{doubt}\t{verdict}"));
            }
        }
    }
    let doubts = [
        ("-", false, true),
        ("doubt, reconstructed", true, true),
        ("doubt, parity not sent", true, false),
    ];
    for (doubt, in_doubt, parity_right) in doubts {
        for own in ENDS {
            for other in OTHERS {
                for parity in ENDS {
                    // Parity that is not right is not sent, so it cannot have been taken.
                    if !parity_right && matches!(parity, Took | Healed) {
                        continue;
                    }
                    let both = matches!(other, Took | Healed | Refused);
                    let (slots, written) = ([own, other, parity], if both { 0b11 } else { 0b01 });
                    let verdict = verdict(Level::Row, &slots, written, in_doubt, parity_right);
                    let [own, other, parity] = slots.map(word);
                    let verdict = words(&["D", "other", "P"], &verdict);
                    lines.push(format!("row\t{own}\t{other}\t{parity}\t{doubt}\t{verdict}"));
                }
            }
        }
    }
    lines
}

fn verdict(
    level: Level,
    slots: &[Slot],
    written: u8,
    in_doubt: bool,
    parity_right: bool,
) -> Verdict {
    let credulous = Credulous::default();
    Column { level, slots, written, in_doubt, parity_right, credulous }.verdict()
}

fn word(slot: Slot) -> String {
    format!("{slot:?}").to_lowercase()
}

fn words(slots: &[&str], verdict: &Verdict) -> String {
    let named = |mask: u8| {
        let named = slots.iter().enumerate().filter(|(slot, _)| mask & 1 << slot != 0);
        named.map(|(_, name)| *name).collect::<Vec<_>>().join("+")
    };
    let mut parts = Vec::new();
    if verdict.list != 0 {
        parts.push(format!("list {}", named(verdict.list)));
    }
    if verdict.unlist != 0 {
        parts.push(format!("unlist {}", named(verdict.unlist)));
    }
    if verdict.out != 0 {
        parts.push(format!("{} out", named(verdict.out)));
    }
    if verdict.end_doubt {
        parts.push("end doubt".into());
    } else if verdict.may_end_doubt {
        parts.push("doubt may end".into());
    }
    match verdict.outcome {
        Outcome::Answer if verdict.may_end_doubt => "answer (doubt may end first)".into(),
        Outcome::Answer => "answer".into(),
        Outcome::Record => format!("record ({}), ask again", parts.join(", ")),
        Outcome::Error => {
            parts.insert(0, "doubt".into());
            format!("error ({})", parts.join(", "))
        }
        Outcome::Broken => "broken".into(),
    }
}

#[cfg(test)]
mod tests;

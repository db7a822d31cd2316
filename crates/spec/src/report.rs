//! Runs the searches, on every core, and prints what they found.

use std::fmt::Debug;
use std::iter;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use crate::belief::{self, Belief};
use crate::connections::{self, Connections};
use crate::flush::{self, Flushes};
use crate::row::{self, Rows};
use crate::search::{Model, Violation, search};

/// What is asked for.
pub(crate) struct Report {
    names: Vec<String>,
    with_ways: bool,
    questions: Vec<Question>,
}

/// What one or a few searches answer.
type Question = Box<dyn Fn() -> Answer + Send + Sync>;

struct Answer {
    searches: usize,
    is_as_expected: bool,
    /// What was found without a rule, by the rule's name.
    without: Option<(String, Violation)>,
}

impl Report {
    /// `names` choose among rules and scopes; all without names.
    pub(crate) fn new(names: Vec<String>, with_ways: bool) -> Self {
        Self { names, with_ways, questions: Vec::new() }
    }

    /// Asks for all searches that were chosen.
    pub(crate) fn search_all(&mut self, large: bool) {
        self.flushes(if large { flush::LARGE } else { flush::SCOPES });
        self.connections();
        self.rows(if large { row::LARGE } else { row::SCOPES });
        self.belief(if large { belief::LARGE } else { belief::SCOPES });
    }

    /// Runs them, and prints the violations, shortest first. Whether all was as expected.
    pub(crate) fn end(self) -> bool {
        let begin = Instant::now();
        let answers = answer_all(&self.questions);
        let searches: usize = answers.iter().map(|answer| answer.searches).sum();
        let is_as_expected = answers.iter().all(|answer| answer.is_as_expected);
        let mut without: Vec<_> = answers.into_iter().filter_map(|answer| answer.without).collect();
        without.sort_by_key(|(_, violation)| violation.trace.len());
        for (title, violation) in &without {
            print_violation(title, violation, self.with_ways);
        }
        if searches == 0 {
            println!("no rule and no scope has such a name: {}", self.names.join(", "));
        }
        let all = if is_as_expected { "all as expected" } else { "NOT AS EXPECTED" };
        println!("{all}: {searches} searches, {} s", begin.elapsed().as_secs());
        is_as_expected && searches > 0
    }

    fn flushes(&mut self, scopes: &[(&'static str, flush::Left)]) {
        let model = |without, left| Flushes { without, left, one_at_a_time: false };
        for &(name, left) in scopes {
            self.holds(&format!("flush: {name}"), model(None, left));
        }
        for &rule in flush::Rule::ALL {
            let scopes = flush::SCOPES.iter();
            self.is_needed(
                "flush",
                rule,
                scopes.map(|&(name, left)| (name, model(Some(rule), left))),
            );
        }
        let without = Some(flush::Rule::WaitForOverlaps);
        for &(name, left) in flush::SCOPES {
            let name = format!("flush: one at a time in place of WaitForOverlaps, {name}");
            self.holds(&name, Flushes { without, left, one_at_a_time: true });
        }
    }

    fn connections(&mut self) {
        let name = "two connections";
        self.holds(&format!("connections: {name}"), Connections { without: None });
        for &rule in connections::Rule::ALL {
            let model = Connections { without: Some(rule) };
            self.is_needed("connections", rule, iter::once((name, model)));
        }
    }

    fn rows(&mut self, scopes: &[row::Scope]) {
        for &scope in scopes {
            self.holds(&format!("row: {}", scope.name), Rows { without: None, scope });
        }
        for &rule in row::Rule::ALL {
            let without = Some(rule);
            let scopes = row::SCOPES.iter();
            self.is_needed("row", rule, scopes.map(|&scope| (scope.name, Rows { without, scope })));
        }
    }

    fn belief(&mut self, scopes: &[belief::Scope]) {
        for &scope in scopes {
            let model = Belief { without: None, scope, compares: true };
            self.holds(&format!("belief: {}", scope.name), model);
        }
        for &rule in belief::Rule::ALL {
            let shown = belief::shown_in(rule);
            let scope = belief::SCOPES.iter().find(|scope| scope.name == shown);
            let scope = *scope.expect("every rule is shown in a scope of the list");
            let model = |compares| Belief { without: Some(rule), scope, compares };
            if belief::NOT_NEEDED.contains(&rule) {
                self.holds(&format!("belief: without {rule:?} in {shown}"), model(true));
            } else {
                // What is read wrong is a better example than copies that differ.
                let models = [false, true].map(|compares| (shown, model(compares)));
                self.is_needed("belief", rule, models.into_iter());
            }
        }
    }

    fn wants(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|wanted| name.contains(wanted.as_str()))
    }

    /// A search that must find nothing.
    fn holds<M: Model + Send + Sync + 'static>(&mut self, name: &str, model: M) {
        if !self.wants(name) {
            return;
        }
        let name = name.to_owned();
        self.questions.push(Box::new(move || {
            let found = search(&model);
            let is_as_expected = found.violation.is_none();
            match &found.violation {
                None => {
                    println!("{name}: holds, {} states, {} steps deep", found.states, found.depth);
                }
                Some(violation) => {
                    print_violation(&format!("{name}: THE RULES ARE NOT ENOUGH"), violation, true);
                }
            }
            Answer { searches: 1, is_as_expected, without: None }
        }));
    }

    /// Searches without a rule, one of which must find something.
    fn is_needed<M: Model + Send + Sync + 'static, R: Debug>(
        &mut self,
        of: &str,
        rule: R,
        models: impl Iterator<Item = (&'static str, M)>,
    ) {
        let name = format!("{of}: without {rule:?}");
        if !self.wants(&name) {
            return;
        }
        let models: Vec<_> = models.collect();
        self.questions.push(Box::new(move || {
            for (at, (scope, model)) in models.iter().enumerate() {
                if let Some(violation) = search(model).violation {
                    let without = Some((format!("{name} ({scope})"), violation));
                    return Answer { searches: at + 1, is_as_expected: true, without };
                }
            }
            println!("{name}: THE RULE IS NOT NEEDED");
            Answer { searches: models.len(), is_as_expected: false, without: None }
        }));
    }
}

/// Searches at most that run at once: a large one takes gigabytes.
const AT_ONCE: usize = 4;

/// Answers all questions, each core one after the other.
fn answer_all(questions: &[Question]) -> Vec<Answer> {
    let next = AtomicUsize::new(0);
    let answer_some = || {
        let next = || questions.get(next.fetch_add(1, Ordering::Relaxed));
        iter::from_fn(next).map(|question| question()).collect::<Vec<_>>()
    };
    let cores = thread::available_parallelism().map_or(1, usize::from).min(AT_ONCE);
    thread::scope(|scope| {
        let under_way: Vec<_> = (0..cores).map(|_| scope.spawn(answer_some)).collect();
        let answers = under_way.into_iter().flat_map(|thread| thread.join().expect("it ends"));
        answers.collect()
    })
}

fn print_violation(title: &str, violation: &Violation, with_way: bool) {
    println!("{title}: {} steps: {}", violation.trace.len(), violation.what);
    for (number, step) in violation.trace.iter().enumerate().filter(|_| with_way) {
        println!("    {:2}. {step}", number + 1);
    }
}

//! Runs the searches and prints what they found.

use std::fmt::Debug;
use std::iter;
use std::time::Instant;

use crate::belief::{self, Belief};
use crate::connections::{self, Connections};
use crate::flush::{self, Flushes};
use crate::row::{self, Rows};
use crate::search::{Found, Model, Violation, search};

/// What is asked for, and how it went so far.
pub(crate) struct Report {
    names: Vec<String>,
    with_ways: bool,
    begin: Instant,
    searches: usize,
    as_expected: bool,
    /// What was found without each rule.
    without: Vec<(String, Violation)>,
}

impl Report {
    /// `names` choose among rules and scopes; all without names.
    pub(crate) fn new(names: Vec<String>, with_ways: bool) -> Self {
        let begin = Instant::now();
        Self { names, with_ways, begin, searches: 0, as_expected: true, without: Vec::new() }
    }

    pub(crate) fn search_all(&mut self, large: bool) {
        self.flushes(if large { flush::LARGE } else { flush::SCOPES });
        self.connections();
        self.rows(if large { row::LARGE } else { row::SCOPES });
        self.belief(if large { belief::LARGE } else { belief::SCOPES });
    }

    /// Prints the violations, shortest first. Whether all was as expected.
    pub(crate) fn end(mut self) -> bool {
        self.without.sort_by_key(|(_, violation)| violation.trace.len());
        for (title, violation) in &self.without {
            print_violation(title, violation, self.with_ways);
        }
        if self.searches == 0 {
            println!("no rule and no scope has such a name: {}", self.names.join(", "));
        }
        let all = if self.as_expected { "all as expected" } else { "NOT AS EXPECTED" };
        println!("{all}: {} searches, {} s", self.searches, self.begin.elapsed().as_secs());
        self.as_expected && self.searches > 0
    }

    fn flushes(&mut self, scopes: &[(&'static str, flush::Left)]) {
        let model = |without, left| Flushes { without, left, one_at_a_time: false };
        for &(name, left) in scopes {
            self.holds(&format!("flush: {name}"), &model(None, left));
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
            self.holds(&name, &Flushes { without, left, one_at_a_time: true });
        }
    }

    fn connections(&mut self) {
        let name = "two connections";
        self.holds(&format!("connections: {name}"), &Connections { without: None });
        for &rule in connections::Rule::ALL {
            let model = Connections { without: Some(rule) };
            self.is_needed("connections", rule, iter::once((name, model)));
        }
    }

    fn rows(&mut self, scopes: &[row::Scope]) {
        for &scope in scopes {
            self.holds(&format!("row: {}", scope.name), &Rows { without: None, scope });
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
            self.holds(&format!("belief: {}", scope.name), &model);
        }
        for &rule in belief::Rule::ALL {
            let shown = belief::shown_in(rule);
            let scope = belief::SCOPES.iter().find(|scope| scope.name == shown);
            let scope = *scope.expect("every rule is shown in a scope of the list");
            let model = |compares| Belief { without: Some(rule), scope, compares };
            if belief::NOT_NEEDED.contains(&rule) {
                self.holds(&format!("belief: without {rule:?} in {shown}"), &model(true));
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

    fn search<M: Model>(&mut self, model: &M) -> Found {
        self.searches += 1;
        search(model)
    }

    /// A search that must find nothing.
    fn holds<M: Model>(&mut self, name: &str, model: &M) {
        if !self.wants(name) {
            return;
        }
        let found = self.search(model);
        match &found.violation {
            None => println!("{name}: holds, {} states, {} steps deep", found.states, found.depth),
            Some(violation) => {
                self.as_expected = false;
                print_violation(&format!("{name}: THE RULES ARE NOT ENOUGH"), violation, true);
            }
        }
    }

    /// Searches without a rule, one of which must find something.
    fn is_needed<M: Model, R: Debug>(
        &mut self,
        of: &str,
        rule: R,
        models: impl Iterator<Item = (&'static str, M)>,
    ) {
        let name = format!("{of}: without {rule:?}");
        if !self.wants(&name) {
            return;
        }
        for (scope, model) in models {
            if let Some(violation) = self.search(&model).violation {
                self.without.push((format!("{name} ({scope})"), violation));
                return;
            }
        }
        self.as_expected = false;
        println!("{name}: THE RULE IS NOT NEEDED");
    }
}

fn print_violation(title: &str, violation: &Violation, with_way: bool) {
    println!("{title}: {} steps: {}", violation.trace.len(), violation.what);
    for (number, step) in violation.trace.iter().enumerate().filter(|_| with_way) {
        println!("    {:2}. {step}", number + 1);
    }
}

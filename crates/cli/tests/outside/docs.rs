//! What the documents show works: every shell block is run as it stands.
//!
//! A block without a language, or with `sh`, is run; others are not. The blocks of one document run
//! in one shell, in order, in an empty folder. What a test must not touch is replaced: `/dev/sdX`
//! are files, `cargo install` and `make` find what is built already. `<!-- not run: REASON -->` in
//! the line above leaves a block out.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::harness::{Mdspace, Tools, project};

/// Stand-ins for what needs the network, root or half an hour.
const PRELUDE: &str = r#"
set -euo pipefail
cargo() { [ "$*" = "install --locked --path crates/cli" ] && [ -f "$PROJECT/crates/cli/Cargo.toml" ]; }
FOLDER=$PWD
cat > built <<'END'
#!/bin/bash
[ "$1 $2" = "run --quiet" ] || { echo "cargo $* has no stand-in" >&2; exit 1; }
while [ "$1" != -- ]; do shift; done
exec mdspace "${@:2}"
END
chmod +x built
make() { command make --silent --directory "$PROJECT" CARGO="$FOLDER/built" "$@"; }
sudo() { "$@"; }
for letter in b c d e f g h; do truncate -s 1G "sd$letter"; done
"#;

/// One shell block and where it begins.
#[derive(Debug, PartialEq)]
struct Block {
    line: usize,
    text: String,
}

/// The blocks of a document that are to be run.
fn blocks(document: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = document.lines().zip(1..);
    let mut above = "";
    while let Some((line, number)) = lines.next() {
        if let Some(language) = line.trim().strip_prefix("```") {
            let inside: Vec<&str> = lines
                .by_ref()
                .map(|(line, _)| line)
                .take_while(|line| !line.trim().starts_with("```"))
                .collect();
            if matches!(language, "" | "sh") && !above.starts_with("<!-- not run: ") {
                blocks.push(Block { line: number, text: inside.join("\n") });
            }
        }
        above = line.trim();
    }
    blocks
}

/// Runs all blocks of a document.
fn run(document: &str) {
    let path = project().join(document);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{document}: {error}"));
    let blocks = blocks(&text);
    assert!(!blocks.is_empty(), "{document} has no shell block");
    let folder = TempDir::with_prefix("docs-").expect("a temporary folder");
    let devices = folder.path().join("sd");
    let mut script = PRELUDE.to_owned();
    for block in &blocks {
        let text = block.text.replace("/dev/sd", devices.to_str().expect("a path of text"));
        script += &format!("echo '### {document}:{}' >&2\n{text}\n", block.line);
    }
    let mdspace = Mdspace::new();
    let output = environment(Command::new("bash"), &mdspace)
        .args(["-c", &script])
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()
        .expect("bash runs");
    assert!(
        output.status.success(),
        "a block of {document} failed:\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

fn environment(mut command: Command, mdspace: &Mdspace) -> Command {
    let binary = Path::new(env!("CARGO_BIN_EXE_mdspace")).parent().expect("a folder");
    let path = format!("{}:{}", binary.display(), Tools::find().path());
    command.env("PATH", path).env("PROJECT", project()).env("MDSPACE_RUN_DIR", mdspace.run_dir());
    command.env("MDSPACE_CONFIG_DIR", mdspace.run_dir().join("etc"));
    command
}

#[test]
fn every_block_of_the_readme_works() {
    run("README.md");
}

#[test]
fn every_block_of_the_administrators_guide_works() {
    run("docs/admin.md");
}

/// Every document of the project.
fn documents() -> Vec<String> {
    let pages = fs::read_dir(project().join("docs")).expect("a folder");
    let pages = pages.map(|page| page.expect("an entry").file_name().into_string().expect("text"));
    let pages = pages.filter(|page| page.ends_with(".md")).map(|page| format!("docs/{page}"));
    ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"]
        .map(str::to_owned)
        .into_iter()
        .chain(pages)
        .collect()
}

/// A line without what is in quotes.
fn unquoted(line: &str) -> String {
    let mut quote = None;
    let outside = line.chars().filter(|&letter| match (quote, letter) {
        (None, '\'' | '"') => {
            quote = Some(letter);
            false
        }
        (None, _) => true,
        (Some(open), _) => {
            quote = quote.filter(|_| letter != open);
            false
        }
    });
    outside.collect()
}

/// zsh runs no line in which a pattern fits no file, and takes `#` for a command.
#[test]
fn every_block_is_commands_that_zsh_takes_too() {
    for document in documents() {
        let text = fs::read_to_string(project().join(&document)).expect("a document");
        let shown = text.replace("<!-- not run: ", "<!-- ");
        for Block { line, text } in blocks(&shown) {
            let is_command = text.starts_with(|letter: char| letter.is_ascii_lowercase());
            assert!(is_command, "{document}:{line}: what is no shell's is marked as `text`");
            let plain = text.lines().map(unquoted).find(|line| line.contains(['?', '*', '#']));
            assert_eq!(plain, None, "{document}:{line}: quote it");
        }
    }
}

#[test]
fn blocks_in_other_languages_and_with_a_reason_are_left_out() {
    let document =
        "```\none\n```\n```toml\nno\n```\n<!-- not run: why -->\n```sh\nno\n```\n```sh\ntwo\n```";
    let found: Vec<_> = blocks(document).into_iter().map(|b| (b.line, b.text)).collect();
    assert_eq!(found, [(1, "one".to_owned()), (11, "two".to_owned())]);
}

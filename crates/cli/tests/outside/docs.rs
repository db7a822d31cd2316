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
make() { command make --silent --directory "$PROJECT" PROFILE=dev "$@"; }
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

#[test]
fn blocks_in_other_languages_and_with_a_reason_are_left_out() {
    let document =
        "```\none\n```\n```toml\nno\n```\n<!-- not run: why -->\n```sh\nno\n```\n```sh\ntwo\n```";
    let found: Vec<_> = blocks(document).into_iter().map(|b| (b.line, b.text)).collect();
    assert_eq!(found, [(1, "one".to_owned()), (11, "two".to_owned())]);
}

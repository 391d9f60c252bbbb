//! The scripts as people start them, in a copy where nothing can be installed or built.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::test_log;
use crate::util::{program, root};

/// A copy of the files that scripts read, and stubs of some programs that they start: a stub only writes down
/// that it was started, and fails.
struct Copy {
    dir: TempDir,
}

const WRITTEN_DOWN: &[&str] =
    &["apt-get", "cargo", "curl", "git", "gst-launch-1.0", "pip", "rustc", "rustup", "sudo"];

impl Copy {
    fn new() -> Self {
        let copy = Self { dir: tempfile::tempdir().unwrap() };
        for folder in ["programs", "home", "project"] {
            std::fs::create_dir(copy.dir.path().join(folder)).unwrap();
        }
        let parts = ["scripts", "Cargo.toml"].map(|part| root().join(part));
        let copied = Command::new("cp").arg("-r").args(parts).arg(copy.project()).status().unwrap();
        assert!(copied.success());
        for name in WRITTEN_DOWN {
            copy.program(name, &format!("echo {name} \"$@\" >>{}\nexit 1", copy.diary().display()));
        }
        copy
    }

    fn project(&self) -> PathBuf {
        self.dir.path().join("project")
    }

    fn diary(&self) -> PathBuf {
        self.dir.path().join("started")
    }

    /// The stubs that were started, as they wrote it down.
    fn started(&self) -> String {
        std::fs::read_to_string(self.diary()).unwrap_or_default()
    }

    /// Makes a program that scripts find before all others.
    fn program(&self, name: &str, does: &str) {
        script(&self.dir.path().join("programs").join(name), does);
    }

    fn run(&self, name: &str, arguments: &[&str]) -> Output {
        let path = format!("{}:/usr/bin:/bin", self.dir.path().join("programs").display());
        // A script that does not end is a failure, and must not stop the tests.
        let mut limited = Command::new("timeout");
        limited.arg("60").arg(self.project().join("scripts").join(name)).args(arguments);
        limited.current_dir(self.dir.path()).stdin(Stdio::null());
        limited.env_clear().env("PATH", path).env("HOME", self.dir.path().join("home"));
        limited.output().unwrap()
    }

    /// Every file and folder with what is in it.
    fn tree(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let (mut tree, mut left) = (BTreeMap::new(), vec![self.dir.path().to_owned()]);
        while let Some(path) = left.pop() {
            if path.is_dir() {
                left.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
                tree.insert(path, Vec::new());
            } else {
                let bytes = std::fs::read(&path).unwrap();
                tree.insert(path, bytes);
            }
        }
        tree
    }
}

fn script(path: &Path, does: &str) {
    std::fs::write(path, format!("#!/bin/sh\n{does}\n")).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn names() -> Vec<String> {
    let entries = std::fs::read_dir(root().join("scripts")).unwrap();
    // Not the folder in which Python keeps compiled files.
    let files = entries.map(Result::unwrap).filter(|entry| entry.path().is_file());
    files.map(|file| file.file_name().into_string().unwrap()).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn every_script_answers_help_with_its_own_text_and_does_nothing_else() {
    if !Path::new("/usr/bin/python3").exists() {
        return test_log::skipped("no Python, in which some scripts are");
    }
    let copy = Copy::new();
    let before = copy.tree();
    for name in names() {
        for help in ["--help", "-h"] {
            let output = copy.run(&name, &[help]);
            let (said, warned) = (text(&output.stdout), text(&output.stderr));
            assert!(output.status.success(), "{name} {help}: {:?}: {warned}", output.status);
            assert!(said.contains(&format!("scripts/{name}")), "{name} {help}: {said}");
            assert_eq!(warned, "", "{name} {help}");
            assert_eq!(copy.started(), "", "{name} {help}");
        }
    }
    assert!(copy.tree() == before, "help changes files");
}

#[test]
fn an_option_that_a_script_does_not_know_is_refused_before_anything_is_done() {
    if !Path::new("/usr/bin/python3").exists() {
        return test_log::skipped("no Python, in which some scripts are");
    }
    let copy = Copy::new();
    let before = copy.tree();
    for name in names() {
        let output = copy.run(&name, &["--no-such-option"]);
        assert_eq!(output.status.code(), Some(2), "{name}: {}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "", "{name}");
        assert!(text(&output.stderr).contains(&name), "{name}: {}", text(&output.stderr));
        assert_eq!(copy.started(), "", "{name}");
    }
    assert!(copy.tree() == before, "a refused option changes files");
}

#[test]
fn a_rust_that_is_too_old_is_told_before_anything_is_installed() {
    let copy = Copy::new();
    copy.program("rustc", "echo 'rustc 1.50.0 (cb75ad5db 2021-02-10)'");
    for name in ["setup", "demo", "install-plugin", "test"] {
        let output = copy.run(name, &[]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{name}: {said}");
        assert!(said.contains("Rust 1.50.0") && said.contains("is too old"), "{name}: {said}");
        // By hand, or by the script.
        assert!(said.contains("rustup update") && said.contains("--with-rust"), "{name}: {said}");
        assert_eq!(copy.started(), "", "{name}");
    }
}

/// A copy whose `scripts/test` finds everything as it should be but for what `tests` does, a case of
/// `cargo test`, and `python`, which is `scripts/test-python`.
fn copy_to_test(tests: &str, python: &str) -> Copy {
    let copy = Copy::new();
    for name in ["setup", "compile-kernels.sh", "performance-tables", "plot-fleet", "check-packages"] {
        script(&copy.project().join("scripts").join(name), "");
    }
    script(&copy.project().join("scripts/test-python"), python);
    copy.program("cargo", &format!("case \"$*\" in\n  'deny --version') exit 1 ;;\n{tests}\nesac"));
    copy.program("pkg-config", "[ \"$*\" != '--modversion gstreamer-1.0' ] || echo 1.22.0\nexit 1");
    copy
}

#[test]
fn the_last_line_of_scripts_test_has_the_totals_of_all_tests() {
    let copy = copy_to_test(
        r"  'test '*' --doc') echo 'test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1.5s' ;;
  'test '*)
    echo '     Running unittests src/lib.rs (target/debug/deps/lockon-1)' >&2
    echo 'test one ... skipped: two: no GPU' >&2
    echo ok
    echo 'test result: ok. 30 passed; 0 failed; 0 ignored; 0 measured; 4 filtered out; finished in 9.0s'
    echo '     Running tests/integration.rs (target/debug/deps/integration-1)' >&2
    echo 'test result: ok. 5 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 9.0s' ;;",
        "echo 'SKIPPED [7] test_recipes.py:41: skipped: OpenCV is not here'
echo '===== 3 passed, 7 skipped in 0.50s ====='",
    );
    let output = copy.run("test", &[]);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", text(&output.stderr));
    assert_eq!(said.lines().last(), Some("39 passed, 0 failed, 11 skipped"));
    for left_out in ["cargo deny: skipped", "features v1_24: skipped, it needs GStreamer 1.24"] {
        assert!(said.contains(left_out), "{said}");
    }
}

#[test]
fn tests_that_fail_or_crash_do_not_keep_others_from_being_run_and_are_named_at_the_end() {
    let copy = copy_to_test(
        r"  'test '*' --doc')
    echo 'test src/lib.rs - (line 3) ... FAILED'
    printf '\nfailures:\n\n---- src/lib.rs - (line 3) stdout ----\nleft: 1\n  4: main\n\nfailures:\n    src/lib.rs\n'
    echo 'test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.5s'
    exit 101 ;;
  'test '*)
    echo '     Running unittests src/lib.rs (target/debug/deps/lockon-1)' >&2
    echo 'error: test failed, to rerun pass `--lib`: SIGTRAP' >&2
    echo '     Running tests/integration.rs (target/debug/deps/integration-1)' >&2
    echo 'test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 9.0s'
    exit 101 ;;",
        "echo 'FAILED test_match.py::test_it - assert 1 == 2'
echo '===== 1 failed, 4 passed in 0.50s ====='
exit 1",
    );
    let output = copy.run("test", &[]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}\n{}", text(&output.stderr));
    assert_eq!(said.lines().last(), Some("10 passed, 3 failed, 0 skipped"));
    let totals = said.split_once("== totals\n").unwrap().1;
    assert!(totals.contains("---- src/lib.rs - (line 3) stdout ----\nleft: 1\n"), "{totals}");
    assert!(totals.contains("\nfailed: src/lib.rs - (line 3)\n"), "{totals}");
    assert!(totals.contains("\nfailed: test_match.py::test_it - assert 1 == 2\n"), "{totals}");
    assert!(said.contains("\nfailed: cargo test --workspace --lib --bins --tests\n"), "{said}");
}

#[test]
fn doctor_asks_for_what_setup_installs_in_the_same_words() {
    // Where no plugin is found, all packages are missing.
    let empty = tempfile::tempdir().unwrap();
    let mut doctor = Command::new(program());
    doctor.arg("doctor").env("GST_PLUGIN_SYSTEM_PATH", empty.path()).env_remove("GST_PLUGIN_PATH");
    let output = doctor.env("GST_REGISTRY", empty.path().join("registry")).output().unwrap();
    let said = text(&output.stdout);
    let command =
        said.lines().last().unwrap().strip_prefix("all missing packages at once: ").expect("a command");
    let (asked, packages) = command.split_at(command.find("gstreamer1.0-").unwrap());
    let setup = std::fs::read_to_string(root().join("scripts/setup")).unwrap();
    assert!(setup.contains(asked.trim()), "{asked} is not in scripts/setup");
    assert!(packages.split(' ').count() >= 5, "{command}");
    for package in packages.split(' ') {
        assert!(
            setup.split([' ', '(', ')', '\n']).any(|word| word == package),
            "{package} is not in scripts/setup"
        );
    }
}

/// A repository whose `scripts/test` and `scripts/package` only write down that they were called; the first
/// fails while a file `fails` is beside the repository.
fn copy_to_release() -> Copy {
    let copy = Copy::new();
    let diary = copy.diary();
    let diary = diary.display();
    copy.program("git", &format!("[ \"$1\" != push ] || echo push >>{diary}\nexec /usr/bin/git \"$@\""));
    copy.program("cargo", "[ \"$1\" = update ]");
    let scripts = copy.project().join("scripts");
    script(&scripts.join("test"), &format!("[ ! -e ../fails ] || exit 1\necho test >>{diary}"));
    script(&scripts.join("package"), &format!("echo package \"$@\" >>{diary}"));
    let project = copy.project();
    std::fs::create_dir(project.join("plugin")).unwrap();
    std::fs::copy(root().join("plugin/Cargo.toml"), project.join("plugin/Cargo.toml")).unwrap();
    std::fs::write(project.join("CHANGELOG.md"), "# Changelog\n\n## Unreleased\n\n- More.\n\n## 0.1.0\n")
        .unwrap();
    for words in ["init -q", "config user.name me", "config user.email me@here", "add .", "commit -qm first"]
    {
        git(&copy, words);
    }
    git(&copy, "tag -am lockon v0.1.0");
    copy
}

fn git(copy: &Copy, words: &str) -> String {
    let output = Command::new("/usr/bin/git").arg("-C").arg(copy.project()).args(words.split(' ')).output();
    let output = output.unwrap();
    assert!(output.status.success(), "git {words}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// True where git is; otherwise reports that the test is skipped.
fn has_git() -> bool {
    let has_git = Path::new("/usr/bin/git").exists();
    if !has_git {
        test_log::skipped("no git, in whose repositories releases are made");
    }
    has_git
}

#[test]
fn a_release_is_a_commit_and_a_tag_behind_tests_and_packages_and_nothing_is_published() {
    if !has_git() {
        return;
    }
    let copy = copy_to_release();
    let output = copy.run("release", &["0.2.0"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let read = |name: &str| std::fs::read_to_string(copy.project().join(name)).unwrap();
    let manifest = read("Cargo.toml");
    assert!(manifest.contains("[workspace.package]\nversion = \"0.2.0\"\n"), "{manifest}");
    assert!(manifest.contains("lockon-core = { path = \"crates/lockon-core\", version = \"0.2.0\" }"));
    assert_eq!(manifest.matches("\"0.1.0\"").count(), 0);
    assert_eq!(read("CHANGELOG.md"), "# Changelog\n\n## 0.2.0\n\n- More.\n\n## 0.1.0\n");
    assert_eq!(copy.started(), "test\npackage deb tarball gstreamer --out out/release-0.2.0\n");
    assert_eq!(git(&copy, "log -1 --format=%s"), "release: 0.2.0\n");
    assert_eq!(git(&copy, "tag --points-at HEAD"), "v0.2.0\n");
    assert_eq!(git(&copy, "status --porcelain"), "");
}

#[test]
fn a_release_whose_tests_fail_has_no_tag_and_can_be_repeated() {
    if !has_git() {
        return;
    }
    let copy = copy_to_release();
    std::fs::write(copy.dir.path().join("fails"), "").unwrap();
    assert_eq!(copy.run("release", &["0.2.0"]).status.code(), Some(1));
    assert_eq!((git(&copy, "tag").as_str(), copy.started().as_str()), ("v0.1.0\n", ""));
    std::fs::remove_file(copy.dir.path().join("fails")).unwrap();
    let output = copy.run("release", &["0.2.0", "--no-packages"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(git(&copy, "tag --points-at HEAD"), "v0.2.0\n");
    assert_eq!(git(&copy, "rev-list --count HEAD"), "2\n");
}

#[test]
fn a_release_whose_commit_cannot_be_made_leaves_all_files_as_before() {
    if !has_git() {
        return;
    }
    let copy = copy_to_release();
    copy.program("cargo", "exit 1");
    let output = copy.run("release", &["0.2.0"]);
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("no commit of version 0.2.0"), "{said}");
    assert_eq!((git(&copy, "tag").as_str(), git(&copy, "status --porcelain").as_str()), ("v0.1.0\n", ""));
    assert_eq!((git(&copy, "rev-list --count HEAD").as_str(), copy.started().as_str()), ("1\n", ""));
}

#[test]
fn a_release_is_refused_before_anything_is_changed() {
    if !has_git() {
        return;
    }
    let copy = copy_to_release();
    let refused = |version: &str, code: i32, reason: &str| {
        let before = (git(&copy, "rev-parse HEAD"), git(&copy, "tag"), git(&copy, "status --porcelain"));
        let output = copy.run("release", &[version]);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(code) && said.contains(reason), "{version}: {said}");
        let after = (git(&copy, "rev-parse HEAD"), git(&copy, "tag"), git(&copy, "status --porcelain"));
        assert_eq!((before, copy.started().as_str()), (after, ""), "{version}");
    };
    refused("next", 2, "is no version");
    refused("0.1.0", 1, "the tag v0.1.0 exists");
    refused("0.0.9", 1, "is not newer than the last release, 0.1.0");
    std::fs::write(copy.project().join("CHANGELOG.md"), "## 0.1.0\n").unwrap();
    refused("0.2.0", 1, "not committed");
    git(&copy, "commit -qam second");
    refused("0.2.0", 1, "no heading \"## Unreleased\"");
}

//! Compresses the kernels' PTX, which the program carries: as text it is an eighth of the program. Names in
//! one line what they were compiled for.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::ZlibEncoder;

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=ptx");
    let out = std::env::var_os("OUT_DIR").expect("cargo sets it");
    let (mut modules, mut versions, mut targets) = (0, BTreeSet::new(), BTreeSet::new());
    for entry in fs::read_dir("ptx")? {
        let path = entry?.path();
        let text = fs::read_to_string(&path)?;
        modules += 1;
        versions.extend(directive(&text, ".version "));
        targets.extend(directive(&text, ".target sm_").map(|target| capability(&target)));
        let name = path.file_name().expect("it is in a folder");
        let packed = File::create(Path::new(&out).join(name).with_extension("ptx.zlib"))?;
        let mut encoder = ZlibEncoder::new(packed, Compression::best());
        encoder.write_all(text.as_bytes())?;
        encoder.finish()?;
    }
    let list = |names: BTreeSet<String>| {
        let mut names: Vec<_> = names.into_iter().collect();
        // By number: 7.5 comes before 10.0, which has more digits before the dot.
        names.sort_by_key(|name| name.find('.'));
        names.join(", ")
    };
    let (versions, targets) = (list(versions), list(targets));
    println!(
        "cargo::rustc-env=LOCKON_KERNELS={modules} modules of PTX {versions} for compute capability {targets}"
    );
    Ok(())
}

/// The rest of the line that begins with that directive.
fn directive(text: &str, name: &str) -> Option<String> {
    Some(text.lines().find_map(|line| line.strip_prefix(name))?.trim().to_owned())
}

/// `9.0a` of `90a`.
fn capability(target: &str) -> String {
    let digits = target.find(|c: char| !c.is_ascii_digit()).unwrap_or(target.len());
    let at = digits.saturating_sub(1);
    format!("{}.{}", &target[..at], &target[at..])
}

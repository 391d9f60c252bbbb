//! Compresses the kernels' PTX, which the program carries: as text it is an eighth of the program.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::ZlibEncoder;

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=ptx");
    let out = std::env::var_os("OUT_DIR").expect("cargo sets it");
    for entry in fs::read_dir("ptx")? {
        let path = entry?.path();
        let name = path.file_name().expect("it is in a folder");
        let packed = File::create(Path::new(&out).join(name).with_extension("ptx.zlib"))?;
        let mut encoder = ZlibEncoder::new(packed, Compression::best());
        encoder.write_all(&fs::read(&path)?)?;
        encoder.finish()?;
    }
    Ok(())
}

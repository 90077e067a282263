//! Writes the Rust of the wire types and their descriptors into a folder: `protogen <proto folder> <folder>`.
//!
//! The `.proto` files are compiled in process, so nobody needs `protoc`. What is written is checked in, so nobody who
//! builds the project needs this program either.

use std::env;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use protox::Compiler;

/// Where the wire begins; what these import comes along.
const ROOTS: [&str; 3] = [
    "throttlekit/v1/throttlekit.proto",
    "envoy/service/auth/v3/external_auth.proto",
    "envoy/service/ratelimit/v3/rls.proto",
];

fn main() -> Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [protos, out] = args.as_slice() else { bail!("usage: protogen <proto folder> <folder>") };
    let (protos, out) = (Path::new(protos), Path::new(out));
    fs::create_dir_all(out)?;
    write_descriptors(protos, out)?;
    write_code(protos, out)
}

/// Comments are left out: they would be most of the bytes, and every server carries them.
fn write_descriptors(protos: &Path, out: &Path) -> Result<()> {
    let compiled = compile(protos, false)?;
    let path = out.join("descriptors.bin");
    fs::write(&path, compiled.encode_file_descriptor_set())
        .with_context(|| format!("cannot write {}", path.display()))
}

fn write_code(protos: &Path, out: &Path) -> Result<()> {
    let compiled = compile(protos, true)?;
    tonic_prost_build::configure()
        .build_transport(false)
        .codec_path("crate::codec::SmallBuffers")
        .emit_rerun_if_changed(false)
        .bytes(".throttlekit.v1")
        .bytes(".envoy")
        // Encoded in order, so that a message has one encoding.
        .btree_map(".envoy")
        .out_dir(out)
        .compile_fds(compiled.file_descriptor_set())
        .context("cannot write the code")
}

fn compile(protos: &Path, comments: bool) -> Result<Compiler> {
    let mut compiler = Compiler::new([protos])?;
    compiler.include_imports(true).include_source_info(comments).open_files(ROOTS)?;
    Ok(compiler)
}

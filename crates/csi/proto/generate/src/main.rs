//! Writes the Rust code of csi.proto. Run it in `crates/csi/proto/generate` with `cargo run`.

use std::error::Error;

/// Services of the specification that the driver has not.
const LEFT_OUT: [&str; 1] = ["SnapshotMetadata"];

fn main() -> Result<(), Box<dyn Error>> {
    let mut files = protox::compile(["csi.proto"], [".."])?;
    for file in &mut files.file {
        file.service.retain(|service| !LEFT_OUT.contains(&service.name()));
        // The texts belong to the specification, and are in csi.proto.
        file.source_code_info = None;
    }
    tonic_prost_build::configure()
        .build_client(false)
        .generate_default_stubs(true)
        .emit_rerun_if_changed(false)
        .out_dir("../../src/proto")
        .compile_fds(files)?;
    Ok(())
}

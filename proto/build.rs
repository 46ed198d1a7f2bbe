//! Compiles the .proto files with a compiler written in Rust, so that no protoc is needed. What they say,
//! with their comments, is kept for those who ask a coordinator what can be asked of it.

use std::path::Path;

use protox::prost::Message as _;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = ["fallow/fleet/v1/fleet.proto", "fallow/operator/v1/operator.proto"];
    for file in files {
        println!("cargo:rerun-if-changed={file}");
    }
    let descriptors = protox::compile(files, ["."])?;
    let out = std::env::var("OUT_DIR")?;
    std::fs::write(Path::new(&out).join("descriptors.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure().codec_path("crate::codec::SmallCodec").compile_fds(descriptors)?;
    Ok(())
}

//! Compiles the .proto files with a compiler written in Rust, so that no protoc is needed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = ["fallow/fleet/v1/fleet.proto", "fallow/operator/v1/operator.proto"];
    for file in files {
        println!("cargo:rerun-if-changed={file}");
    }
    let descriptors = protox::compile(files, ["."])?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}

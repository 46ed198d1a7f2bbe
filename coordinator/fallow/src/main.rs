//! `fallow`: the coordinator and its operators' tools.

fn main() -> std::process::ExitCode {
    fallow::main()
}

//! What a batch costs on this machine's disk: `cargo run --release -p fallow-store --example cost -- DIR`.

use std::time::Instant;

use fallow_store::{Batch, SledStore, Store};

#[allow(clippy::disallowed_methods, reason = "a measurement reads the clock")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir =
        std::env::args().nth(1).ok_or("usage: cost DIR (an empty directory on the disk to be measured)")?;
    let store = SledStore::open(&dir)?;
    let value = vec![7_u8; 500];
    for (name, durable, rounds) in [("apply", false, 2000_u32), ("apply_durable", true, 200)] {
        let start = Instant::now();
        for round in 0..rounds {
            let batch = Batch::new().put(format!("{name}/{round}"), value.clone());
            let outcome = if durable { store.apply_durable(batch)? } else { store.apply(batch)? };
            assert!(outcome.is_applied());
        }
        println!("{name}: {:?} a batch of one 500-byte value", start.elapsed() / rounds);
    }
    let mut batch = Batch::new();
    for number in 0..100_000_u32 {
        batch.add_put(format!("many/{number:06}"), &value[..100]);
    }
    let start = Instant::now();
    assert!(store.apply(batch)?.is_applied());
    println!("one batch of 100,000 values: {:?}", start.elapsed());
    let start = Instant::now();
    let found = store.scan_prefix(b"many/")?.len();
    println!("scan of {found}: {:?}", start.elapsed());
    drop(store);
    let start = Instant::now();
    drop(SledStore::open(&dir)?);
    println!("open with {found} and more: {:?}", start.elapsed());
    Ok(())
}

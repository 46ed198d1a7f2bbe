//! A copy of a store at one instant while others write.

#![allow(clippy::unwrap_used, reason = "tests: failures are panics")]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fallow_store::{Batch, Copied, SledStore, Store};

fn copied(store: &dyn Store, mut each: impl FnMut()) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut take = |part: Vec<Copied>| {
        each();
        for (key, value) in part {
            match value {
                Some(value) => drop(all.insert(key, value)),
                None => drop(all.remove(&key)),
            }
        }
        ControlFlow::Continue(())
    };
    store.copy(&mut take).unwrap();
    all
}

fn number(value: &[u8]) -> u64 {
    u64::from_be_bytes(value.try_into().unwrap())
}

/// Shows R6.5.
#[test]
fn a_copy_made_while_others_write_has_each_batch_whole_or_not_at_all_and_none_left_out() {
    const PAIRS: u64 = 3_000;
    let dir = tempfile::tempdir().unwrap();
    let store = SledStore::open(dir.path()).unwrap();
    // The first key of a pair is at the begin of the store and the second at its end.
    let pair = |pair: u64, value: Option<u64>| {
        [b'a', b'z'].iter().fold(Batch::new(), |batch, first| {
            let key = [&[*first][..], &pair.to_be_bytes()].concat();
            match value {
                Some(value) => batch.put(key, value.to_be_bytes()),
                None => batch.delete(key),
            }
        })
    };
    for one in 0..PAIRS {
        assert!(store.apply(pair(one, Some(0))).unwrap().is_applied());
    }
    let (ends, written) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _writer = scope.spawn(|| {
            let mut value = 0_u64;
            while !ends.load(Ordering::Relaxed) {
                value += 1;
                let one = value.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (PAIRS + 100);
                // Some are removed, and some are new.
                let value = Some(value).filter(|value| value % 7 != 0);
                assert!(store.apply(pair(one, value)).unwrap().is_applied());
                let _ = written.fetch_add(1, Ordering::SeqCst);
            }
        });
        for _ in 0..5 {
            let before = written.load(Ordering::SeqCst);
            // Something is written between each part and the next.
            let all = copied(&store, || {
                let now = written.load(Ordering::SeqCst);
                while written.load(Ordering::SeqCst) < now + 3 {
                    std::thread::yield_now();
                }
            });
            let firsts = all.range(vec![b'a']..vec![b'b']);
            let mut newest = 0;
            let mut count = 0;
            for (key, value) in firsts {
                let second = [b"z", &key[1..]].concat();
                assert_eq!(all.get(&second), Some(value), "{key:?}");
                newest = newest.max(number(value));
                count += 2;
            }
            assert_eq!(all.len(), count);
            assert!(newest >= before, "what was written before the copy began is in it");
        }
        ends.store(true, Ordering::Relaxed);
    });
    // Nothing is noted any more, and all is as it was.
    let all = copied(&store, || {});
    let there = store.scan_prefix(b"").unwrap();
    assert_eq!(all.into_iter().collect::<Vec<_>>(), there);
}

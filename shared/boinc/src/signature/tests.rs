use super::*;
use proptest::prelude::*;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};

fn key(seed: u64) -> PrivateKey {
    let mut random = Pcg64::seed_from_u64(seed);
    PrivateKey::generate(&mut |buffer| random.fill_bytes(buffer)).unwrap()
}

/// Random bytes for masking.
fn fill(buffer: &mut [u8]) {
    Pcg64::seed_from_u64(9).fill_bytes(buffer);
}

/// The code-signing key of a real project.
const REAL_KEY: &str = "1024
9e31905d6574e27184a385b459286c85fa1cf264293014ba64f861f985f69935
9d7962c88d1b0db43a0f1ba2ae53db9e8de584a8d7731548f31b683f18abeb85
a60acf8452f49a81f2b21c7e2eca6bb4fb661288d0204ec12154b6db66c7bbfa
9aaa861293ad1e5fd8a1eb42edcdfe8c8322fcc12fab85f102b00d030a3de7c7
0000000000000000000000000000000000000000000000000000000000000000
0000000000000000000000000000000000000000000000000000000000000000
0000000000000000000000000000000000000000000000000000000000000000
0000000000000000000000000000000000000000000000000000000000010001
.";

#[test]
fn a_real_projects_key_reads_and_is_written_the_same() {
    assert_eq!(PublicKey::parse(REAL_KEY).unwrap().to_text(), REAL_KEY);
    assert_eq!(PublicKey::parse(&format!("\n{REAL_KEY}\n")).unwrap().to_text(), REAL_KEY);
}

#[test]
fn keys_survive_their_stored_and_their_text_form() {
    let private = key(1);
    let back = PrivateKey::from_pem(&private.to_pem().unwrap()).unwrap();
    assert_eq!(back, private);
    let public = private.public_key();
    assert_eq!(PublicKey::parse(&public.to_text()).unwrap(), public);
    assert!(!format!("{private:?}").contains("BEGIN"));
}

#[test]
fn signatures_hold_for_what_was_signed_and_for_nothing_else() {
    let (private, other) = (key(2), key(3));
    let public = private.public_key();
    let md5 = md5_hex(b"an application");

    let signature = private.sign_file(&md5, &mut fill).unwrap();
    assert_eq!(signature.lines().count(), 5);
    assert!(public.verify_file(&md5, &signature));
    assert!(!public.verify_file(&md5_hex(b"another"), &signature));
    assert!(!other.public_key().verify_file(&md5, &signature));

    let permission = private.sign_upload("out_0", Bytes(5_000_000), &mut fill).unwrap();
    assert!(public.verify_upload("out_0", Bytes(5_000_000), &permission));
    assert!(!public.verify_upload("out_0", Bytes(5_000_001), &permission));
    assert!(!public.verify_upload("out_1", Bytes(5_000_000), &permission));

    let new_key = other.public_key().to_text();
    let change = private.sign_key(&new_key, &mut fill).unwrap();
    assert!(public.verify_key(&format!("\n{new_key}\n"), &change));
    assert!(!public.verify_key(REAL_KEY, &change));
    assert!(!other.public_key().verify_key(&new_key, &change));
}

#[test]
fn r6_10_what_is_computed_with_the_private_key_is_masked_by_random_numbers_and_the_signature_stays_the_same()
{
    let private = key(5);
    let signed_with = |seed: u64| {
        let (mut random, mut drawn) = (Pcg64::seed_from_u64(seed), 0);
        let mut fill = |buffer: &mut [u8]| {
            drawn += buffer.len();
            random.fill_bytes(buffer);
        };
        let signature = private.sign_upload("out_0", Bytes(5_000_000), &mut fill).unwrap();
        (signature, drawn)
    };
    let (one, other) = (signed_with(1), signed_with(2));
    assert_eq!(one.0, other.0);
    assert!(one.1 >= GENERATED_BITS / 8 && other.1 >= GENERATED_BITS / 8, "{} and {} bytes", one.1, other.1);
}

#[test]
fn only_an_md5_is_signed_or_verified() {
    let private = key(4);
    for bad in ["", "abc", "900150983CD24FB0D6963F7D28E17F72", "900150983cd24fb0d6963f7d28e17f7g"] {
        assert!(matches!(private.sign_file(bad, &mut fill), Err(KeyError::NoMd5)));
    }
}

#[test]
fn keys_that_are_none_are_refused_with_the_reason() {
    let even = REAL_KEY.replacen("3de7c7", "3de7c6", 1);
    let short = REAL_KEY.replacen("9e31", "0031", 1);
    let no_exponent = REAL_KEY.replacen("10001\n.", "00000\n.", 1);
    let itself = REAL_KEY.replacen("10001\n.", "00001\n.", 1);
    let even_exponent = REAL_KEY.replacen("10001\n.", "10002\n.", 1);
    let huge = REAL_KEY.replacen(
        "0000000000000000000000000000000000000000000000000000000000000000",
        &"f".repeat(64),
        1,
    );
    // As a program for 512 bits would have written it.
    let half: Vec<&str> = REAL_KEY.lines().collect();
    let weak = format!("512\n{}\n{}\n{}\n{}\n.", half[1], half[2], half[7], half[8]);
    let cut = &REAL_KEY[..200];
    for (text, expected) in [
        ("", "a line with the number of bits"),
        ("what\n00\n.", "a line with the number of bits"),
        ("8\n0303\n.", "1024 bits"),
        ("999999999999\n00\n.", "1024 bits"),
        (weak.as_str(), "1024 bits"),
        (cut, "modulus and exponent in hexadecimal"),
        (even.as_str(), "an odd modulus"),
        (short.as_str(), "an odd modulus of as many bits"),
        (no_exponent.as_str(), "an odd exponent"),
        (itself.as_str(), "an odd exponent"),
        (even_exponent.as_str(), "an odd exponent"),
        (huge.as_str(), "an odd exponent"),
    ] {
        let error = PublicKey::parse(text).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn the_md5_of_a_reader_is_that_of_all_it_gives() {
    assert_eq!(md5_of(&b"abc"[..]).unwrap(), ("900150983cd24fb0d6963f7d28e17f72".to_owned(), Bytes(3)));
    let long = vec![7; 200_000];
    assert_eq!(md5_of(&long[..]).unwrap(), (md5_hex(&long), Bytes(200_000)));
}

proptest! {
    #[test]
    fn no_signature_text_panics_or_passes(text in ".{0,300}", bytes in prop::collection::vec(any::<u8>(), 128)) {
        let public = PublicKey::parse(REAL_KEY).unwrap();
        let md5 = md5_hex(b"x");
        prop_assert!(!public.verify_file(&md5, &text));
        prop_assert!(!public.verify_file(&md5, &hex(&bytes)));
        let _ = PublicKey::parse(&text);
    }
}

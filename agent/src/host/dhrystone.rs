//! Dhrystone 2.1: the mix of assignments, calls, comparisons and strings that Weicker counted in programs of
//! 1984, from which BOINC takes `p_iops`.
//!
//! Model: the variables that are global in the original are one structure, as in BOINC
//! (`client/dhrystone.cpp`). What BOINC compiles as a second unit, so that nothing of it can be worked out
//! beforehand or taken into its callers, is kept from that here too. Strings are arrays filled with zeros,
//! compared as a whole. Names are those of the original.

use std::cmp::Ordering;
use std::hint::black_box;

/// Runs of the main loop that one call makes, as in BOINC.
pub(super) const RUNS: u32 = 16_000;
/// Runs per second of a VAX 11/780, which makes a million instructions per second.
pub(super) const VAX: f64 = 1757.0;

/// Text of 30 letters and its end.
type Text = [u8; 31];

const SOME: Text = *b"DHRYSTONE PROGRAM, SOME STRING\0";
const FIRST: Text = *b"DHRYSTONE PROGRAM, 1'ST STRING\0";
const SECOND: Text = *b"DHRYSTONE PROGRAM, 2'ND STRING\0";
const THIRD: Text = *b"DHRYSTONE PROGRAM, 3'RD STRING\0";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
enum Ident {
    One,
    Two,
    Three,
    Four,
    #[expect(dead_code, reason = "the original has it too, and never makes one")]
    Five,
}

/// A record, with the index of another one in place of a pointer, laid out as the original is in C: what
/// copying it costs hangs on that.
#[derive(Clone, Copy)]
#[repr(C)]
struct Record {
    next: usize,
    discriminant: Ident,
    kind: Ident,
    number: i32,
    text: Text,
}

/// What is global in the original.
pub(super) struct Globals {
    records: [Record; 2],
    /// Index of the first record.
    first: usize,
    number: i32,
    flag: bool,
    letter_1: u8,
    letter_2: u8,
    array_1: [i32; 50],
    array_2: [[i32; 50]; 50],
}

impl Globals {
    /// As before the first run.
    pub(super) fn new() -> Box<Self> {
        let record = Record { next: 1, discriminant: Ident::One, kind: Ident::Three, number: 40, text: SOME };
        let mut array_2 = [[0; 50]; 50];
        array_2[8][7] = 10;
        Box::new(Self {
            records: [record, Record { text: [0; 31], ..record }],
            first: 0,
            number: 0,
            flag: false,
            letter_1: 0,
            letter_2: 0,
            array_1: [0; 50],
            array_2,
        })
    }
}

/// What the main program's own variables are after a call, for whoever checks.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Locals {
    int_1: i32,
    int_2: i32,
    int_3: i32,
    ident: Ident,
    text: Text,
}

/// Runs the main loop [`RUNS`] times.
pub(super) fn run(globals: &mut Globals) -> Locals {
    let globals = black_box(globals);
    let text_1 = black_box(FIRST);
    let mut locals = Locals { int_1: 0, int_2: 0, int_3: 0, ident: Ident::One, text: FIRST };
    for run in 0..RUNS {
        proc_5(globals);
        proc_4(globals);
        locals.int_1 = 2;
        locals.int_2 = 3;
        locals.text = SECOND;
        locals.ident = Ident::Two;
        globals.flag = !func_2(globals, &text_1, &locals.text);
        while locals.int_1 < locals.int_2 {
            locals.int_3 = 5 * locals.int_1 - locals.int_2;
            proc_7(locals.int_1, locals.int_2, &mut locals.int_3);
            locals.int_1 += 1;
        }
        proc_8(globals, locals.int_1, locals.int_3);
        proc_1(globals, globals.first);
        let mut letter = b'A';
        while letter <= globals.letter_2 {
            if locals.ident == func_1(globals, letter, b'C') {
                proc_6(globals, Ident::One, &mut locals.ident);
                locals.text = THIRD;
                locals.int_2 = run.cast_signed();
                globals.number = run.cast_signed();
            }
            letter += 1;
        }
        locals.int_2 *= locals.int_1;
        locals.int_1 = locals.int_2 / locals.int_3;
        locals.int_2 = 7 * (locals.int_2 - locals.int_3) - locals.int_1;
        proc_2(globals, &mut locals.int_1);
    }
    locals
}

fn proc_1(globals: &mut Globals, at: usize) {
    let next = globals.records[at].next;
    globals.records[next] = globals.records[globals.first];
    globals.records[at].number = 5;
    globals.records[next].number = globals.records[at].number;
    globals.records[next].next = globals.records[at].next;
    globals.records[next].next = proc_3(globals, globals.records[next].next);
    if globals.records[next].discriminant == Ident::One {
        globals.records[next].number = 6;
        let mut kind = globals.records[next].kind;
        proc_6(globals, globals.records[at].kind, &mut kind);
        globals.records[next].kind = kind;
        globals.records[next].next = globals.records[globals.first].next;
        proc_7(globals.records[next].number, 10, &mut globals.records[next].number);
    } else {
        globals.records[at] = globals.records[globals.records[at].next];
    }
}

fn proc_2(globals: &Globals, number: &mut i32) {
    let mut local = *number + 10;
    loop {
        let mut is_one = false;
        if globals.letter_1 == b'A' {
            local -= 1;
            *number = local - globals.number;
            is_one = true;
        }
        if is_one {
            break;
        }
    }
}

/// Returns what the original writes through a pointer that is null in no run.
fn proc_3(globals: &mut Globals, next: usize) -> usize {
    let next = globals.records.get(globals.first).map_or(next, |first| first.next);
    proc_7(10, globals.number, &mut globals.records[globals.first].number);
    next
}

fn proc_4(globals: &mut Globals) {
    globals.flag |= globals.letter_1 == b'A';
    globals.letter_2 = b'B';
}

fn proc_5(globals: &mut Globals) {
    globals.letter_1 = b'A';
    globals.flag = false;
}

#[inline(never)]
fn proc_6(globals: &Globals, ident: Ident, out: &mut Ident) {
    *out = if func_3(ident) { ident } else { Ident::Four };
    match ident {
        Ident::One => *out = Ident::One,
        Ident::Two => *out = if globals.number > 100 { Ident::One } else { Ident::Four },
        Ident::Three => *out = Ident::Two,
        Ident::Four => {}
        Ident::Five => *out = Ident::Three,
    }
}

#[inline(never)]
fn proc_7(int_1: i32, int_2: i32, out: &mut i32) {
    let local = int_1 + 2;
    *out = int_2 + local;
}

#[inline(never)]
fn proc_8(globals: &mut Globals, int_1: i32, int_2: i32) {
    let (array_1, array_2) = (&mut globals.array_1, &mut globals.array_2);
    let local = int_1 + 5;
    let at = local.cast_unsigned() as usize;
    array_1[at] = int_2;
    array_1[at + 1] = array_1[at];
    array_1[at + 30] = local;
    array_2[at][at..=at + 1].fill(local);
    array_2[at][at - 1] = array_2[at][at - 1].wrapping_add(1);
    array_2[at + 20][at] = array_1[at];
    globals.number = 5;
}

#[inline(never)]
fn func_1(globals: &mut Globals, letter_1: u8, letter_2: u8) -> Ident {
    if letter_1 == letter_2 {
        globals.letter_1 = letter_1;
        Ident::Two
    } else {
        Ident::One
    }
}

#[inline(never)]
fn func_2(globals: &mut Globals, text_1: &Text, text_2: &Text) -> bool {
    let (mut at, mut letter) = (2, 0);
    while at <= 2 {
        if func_1(globals, text_1[at], text_2[at + 1]) == Ident::One {
            letter = b'A';
            at += 1;
        }
    }
    if (b'W'..b'Z').contains(&letter) {
        at = 7;
    }
    if letter == b'R' {
        return true;
    }
    if text_1.cmp(text_2) == Ordering::Greater {
        globals.number = at as i32 + 7;
        return true;
    }
    false
}

fn func_3(ident: Ident) -> bool {
    ident == Ident::Three
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values that the original prints for whoever checks it.
    #[test]
    fn the_variables_end_as_dhrystone_says_that_they_should() {
        let mut globals = Globals::new();
        let locals = run(&mut globals);
        assert_eq!((globals.number, globals.flag), (5, true));
        assert_eq!((globals.letter_1, globals.letter_2), (b'A', b'B'));
        assert_eq!(globals.array_1[8], 7);
        assert_eq!(globals.array_2[8][7], 10 + RUNS.cast_signed());
        let (first, second) = (&globals.records[0], &globals.records[1]);
        assert_eq!((first.discriminant, first.kind, first.number), (Ident::One, Ident::Three, 17));
        assert_eq!((second.discriminant, second.kind, second.number), (Ident::One, Ident::Two, 18));
        assert_eq!((first.text, second.text), (SOME, SOME));
        assert_eq!((locals.int_1, locals.int_2, locals.int_3), (5, 13, 7));
        assert_eq!((locals.ident, locals.text), (Ident::Two, SECOND));
    }
}

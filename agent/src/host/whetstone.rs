//! Whetstone: the mix of floating-point work that Curnow and Wichmann counted in programs of 1970, from which
//! BOINC takes `p_fpops`.
//!
//! Model: eight sections, each repeated as often as BOINC repeats it (`client/whetstone.cpp`), whose
//! modification runs the first one ten times as often as the original. All eight together count as 10⁸
//! operations. Calls, angles and functions are most of the time, so none may be left out: the figure of some
//! would not be the figure of all.

use std::hint::black_box;

/// What one pass counts for.
pub(super) const OPERATIONS: f64 = 1e8;

/// The constants that keep the values from running off.
const T: f64 = 0.499_999_75;
const T1: f64 = 0.500_000_25;
const T2: f64 = 2.0;
/// BOINC's scale: a thousand times the original's loops.
const SCALE: u32 = 1_000;

/// Runs all eight sections once. Returns what they came to, so that no compiler takes them for useless.
pub(super) fn pass() -> [f64; 9] {
    let mut e = [1.0, -1.0, -1.0, -1.0];
    array_elements(&mut e, 12 * 10 * SCALE);
    let elements = e[0];
    for _ in 0..14 * SCALE {
        array_as_parameter(&mut e);
    }
    let parameter = e[0];
    let jumps = conditional_jumps(345 * SCALE);
    let integers = integer_arithmetic(&mut e, 210 * SCALE);
    let (x, y) = angles(32 * SCALE);
    let calls = calls(899 * SCALE);
    let references = array_references(&mut e, 616 * SCALE);
    let functions = functions(93 * SCALE);
    [elements, parameter, jumps, integers, e[1], x + y, calls, references, functions]
}

fn array_elements(e: &mut [f64; 4], loops: u32) {
    for _ in 0..loops {
        e[0] = (e[0] + e[1] + e[2] - e[3]) * T;
        e[1] = (e[0] + e[1] - e[2] + e[3]) * T;
        e[2] = (e[0] - e[1] + e[2] + e[3]) * T;
        e[3] = (-e[0] + e[1] + e[2] + e[3]) * T;
    }
}

fn array_as_parameter(e: &mut [f64; 4]) {
    for _ in 0..6 {
        e[0] = (e[0] + e[1] + e[2] - e[3]) * T;
        e[1] = (e[0] + e[1] - e[2] + e[3]) * T;
        e[2] = (e[0] - e[1] + e[2] + e[3]) * T;
        e[3] = (-e[0] + e[1] + e[2] + e[3]) / T2;
    }
}

fn conditional_jumps(loops: u32) -> f64 {
    let one: i64 = black_box(1);
    let (mut j, mut k) = (one, one);
    for _ in 0..loops {
        let l = if j == 1 { one } else { k };
        j = if k > 2 { one } else { 1 };
        k = if l < 1 { 1 } else { one };
    }
    j as f64
}

fn integer_arithmetic(e: &mut [f64; 4], loops: u32) -> f64 {
    let (mut j, mut k, mut l) = (e[0] as i64, 2_i64, 3_i64);
    for _ in 0..loops {
        j = j.wrapping_mul(k.wrapping_sub(j)).wrapping_mul(l.wrapping_sub(k));
        k = l.wrapping_mul(k).wrapping_sub(l.wrapping_sub(j).wrapping_mul(k));
        l = l.wrapping_sub(k).wrapping_mul(k.wrapping_add(j));
        e[(l & 3) as usize] = j.wrapping_add(k).wrapping_add(l) as f64;
        e[(k & 3) as usize] = j.wrapping_mul(k).wrapping_mul(l) as f64;
    }
    e[0]
}

fn angles(loops: u32) -> (f64, f64) {
    let (mut x, mut y) = (0.5_f64, 0.5_f64);
    // One loop fewer than it says: the original counts from 1.
    for _ in 1..loops {
        x = T * (T2 * x.sin() * x.cos() / ((x + y).cos() + (x - y).cos() - 1.0)).atan();
        y = T * (T2 * y.sin() * y.cos() / ((x + y).cos() + (x - y).cos() - 1.0)).atan();
    }
    (x, y)
}

fn calls(loops: u32) -> f64 {
    let (mut x, mut y, mut z) = (1.0, 1.0, 1.0);
    for _ in 0..loops {
        call(&mut x, &mut y, &mut z);
    }
    x
}

fn call(x: &mut f64, y: &mut f64, z: &mut f64) {
    *x = *y;
    *y = *z;
    *x = T * (*x + *y);
    *y = T1 * (*x + *y);
    *z = (*x + *y) / T2;
}

fn array_references(e: &mut [f64; 4], loops: u32) -> f64 {
    (e[0], e[1], e[2]) = (1.0, 2.0, 3.0);
    for _ in 0..loops {
        (e[0], e[1]) = (e[1], e[2]);
        // Compilers of the original keep the array in registers, and the loop: no other compiler may leave it
        // out.
        e[2] = black_box(e[0]);
    }
    e[0]
}

fn functions(loops: u32) -> f64 {
    let mut x = 0.75_f64;
    for _ in 0..loops {
        x = (x.ln() / T1).exp().sqrt();
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_stay_where_the_constants_of_whetstone_keep_them() {
        let [elements, parameter, jumps, _, _, angles, calls, references, functions] = pass();
        assert!(elements.abs() < 2.0 && parameter.abs() < 2.0, "{elements} {parameter}");
        assert_eq!((jumps, references), (1.0, 3.0));
        // Known of the original: x and y end near 0.5, calls near 1, functions near 0.83.
        assert!((0.9..1.1).contains(&angles), "{angles}");
        assert!((0.9..1.1).contains(&calls), "{calls}");
        assert!((0.7..1.0).contains(&functions), "{functions}");
    }
}

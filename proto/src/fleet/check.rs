//! Checks that several readers share. An error says which value it is, in the words of the contract.

use fallow_domain::Duration;

use super::limits::{MICROS_MAX, TEXT_BYTES};

pub(super) fn text(name: &str, value: &str) -> Result<(), String> {
    text_within(name, value, TEXT_BYTES)
}

pub(super) fn text_within(name: &str, value: &str, most: usize) -> Result<(), String> {
    if value.len() > most || value.chars().any(|c| c.is_control() && c != '\n' && c != '\t') {
        return Err(format!("{name} has more than {most} bytes or control characters in it"));
    }
    Ok(())
}

pub(super) fn micros(name: &str, value: i64) -> Result<i64, String> {
    if (0..=MICROS_MAX).contains(&value) {
        Ok(value)
    } else {
        Err(format!("{name} is {value} µs, out of range"))
    }
}

pub(super) fn duration(name: &str, value: i64) -> Result<Duration, String> {
    micros(name, value).map(Duration::from_micros)
}

pub(super) fn number(name: &str, value: f64, low: f64, high: f64) -> Result<f64, String> {
    if (low..=high).contains(&value) {
        Ok(value)
    } else {
        Err(format!("{name} is {value}, not from {low} to {high}"))
    }
}

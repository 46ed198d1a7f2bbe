//! The water level: how much of a type each weight gets, if no project gets more than its jobs can use.
//!
//! Weights of zero get what all others together cannot use, in equal parts. A part of R3.8.

use super::flow::Flow;

/// Sets the rates of all flows, from what each can use at most.
pub(super) fn divide(total: f64, flows: &mut [Flow]) {
    let left = pour(total, flows, |flow| flow.weight);
    pour(left, flows, |flow| if flow.weight > 0.0 { 0.0 } else { 1.0 });
}

/// Gives flows with a weight what the weight is worth or what they can use. What is over goes round again
/// among the others; each round fills a flow or is the last one. Returns what nobody could use.
fn pour(total: f64, flows: &mut [Flow], weight: impl Fn(&Flow) -> f64) -> f64 {
    let mut left = total.max(0.0);
    let mut weights = 0.0;
    for flow in flows.iter_mut() {
        let weight = weight(flow);
        if weight > 0.0 {
            weights += weight;
            flow.next_rate = f64::NAN;
        }
    }
    loop {
        let level = if weights > 0.0 { left / weights } else { 0.0 };
        let mut filled = false;
        for flow in flows.iter_mut() {
            let weight = weight(flow);
            if weight > 0.0 && flow.next_rate.is_nan() && flow.most() <= weight * level {
                flow.next_rate = flow.most();
                left -= flow.most();
                weights -= weight;
                filled = true;
            }
        }
        if !filled {
            for flow in flows.iter_mut().filter(|flow| flow.next_rate.is_nan()) {
                flow.next_rate = weight(flow) * level;
                left = 0.0;
            }
            return left.max(0.0);
        }
    }
}

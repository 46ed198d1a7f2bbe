//! What a refusal tells the caller: it comes in a header, which has no room for more than so much.

use fallow_domain::printable;
use tonic::Status;

/// Bytes of the reason that the caller is told.
const TOLD: usize = 2_000;
/// Stands at the end of a reason that was longer.
const CUT: &str = "...";

/// A refusal that says no more than fits: names of any length are in it as they were given.
pub(super) fn within(status: Status) -> Status {
    if status.message().len() <= TOLD {
        return status;
    }
    let told = printable::lines(status.message(), TOLD - CUT.len()) + CUT;
    let (code, metadata) = (status.code(), status.metadata().clone());
    Status::with_details_and_metadata(code, told, status.details().to_vec().into(), metadata)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_10_a_reason_that_is_too_long_for_its_header_keeps_its_lines_and_shows_that_it_was_cut() {
        let long = format!("quiet.toml:2:14: one\nquiet.toml:3:1: {}\x1b[2J", "two ".repeat(1_000));
        let told = within(Status::invalid_argument(&long));
        assert!(told.message().starts_with("quiet.toml:2:14: one\nquiet.toml:3:1: two two"), "{told}");
        assert!(told.message().ends_with("two ..."), "{told}");
        assert_eq!((told.code(), told.message().len()), (tonic::Code::InvalidArgument, TOLD));
        let short = "a\nb";
        assert_eq!(within(Status::not_found(short)).message(), short);
    }
}

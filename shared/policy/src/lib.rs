//! The decisions of a volunteer-computing client, as pure functions.

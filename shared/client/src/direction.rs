//! Which way a transfer goes.

use serde::{Deserialize, Serialize};

/// Which way a transfer goes, as seen from the host. Stored as whether it is an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "bool", into = "bool")]
pub enum Direction {
    /// From a server.
    Download,
    /// To a server.
    Upload,
}

impl Direction {
    /// Both, downloads first.
    pub const BOTH: [Self; 2] = [Self::Download, Self::Upload];
}

impl From<bool> for Direction {
    fn from(is_upload: bool) -> Self {
        if is_upload { Self::Upload } else { Self::Download }
    }
}

impl From<Direction> for bool {
    fn from(direction: Direction) -> Self {
        direction == Direction::Upload
    }
}

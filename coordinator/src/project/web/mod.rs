//! The HTTP service.

use super::server::ProjectServer;

/// All projects.
pub(crate) fn router(server: ProjectServer) -> axum::Router {
    let _ = server.shared();
    axum::Router::new()
}

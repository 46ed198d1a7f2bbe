//! Files for clients: applications and inputs, with ranges, so that a client resumes where it was cut off.

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use fallow_boinc::names::is_file_name;
use tower_http::services::ServeFile;

use super::{Failure, Web, blocking};

/// GET and HEAD. Everything in the download directory is public: clients fetch without credentials.
pub(super) async fn file(
    State(web): State<Web>,
    Path((project, file)): Path<(String, String)>,
    request: Request,
) -> Result<Response, Failure> {
    let project = web.project(&project)?;
    if !is_file_name(&file) {
        return Err(Failure::NotFound);
    }
    let path = project.layout.download(&file);
    let (name, of) = (file.clone(), project.clone());
    if !blocking(move || of.is_intact(&name)).await? {
        return Err(Failure::Ours);
    }
    match ServeFile::new(path).try_call(request).await {
        Ok(response) => Ok(response.map(Body::new).into_response()),
        Err(problem) => {
            tracing::error!(%file, error = &problem as &dyn std::error::Error, "a download failed");
            Err(Failure::Ours)
        }
    }
}

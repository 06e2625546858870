//! Files inside the binary: the style sheet, three scripts, an icon.

use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use rust_embed::RustEmbed;

#[derive(RustEmbed)]
#[folder = "assets/"]
struct Assets;

/// One file. Its address has a version in it, so a browser need not ask twice.
pub(crate) async fn serve(Path(name): Path<String>) -> Response {
    let kind = match name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("LICENSE") => "text/plain; charset=utf-8",
        _ => return StatusCode::NOT_FOUND.into_response(),
    };
    match Assets::get(&name) {
        Some(file) => {
            let headers = [
                (header::CONTENT_TYPE, kind),
                (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
            ];
            (headers, file.data).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

/// What distinguishes these files from those of another build.
pub(crate) fn version() -> String {
    let parts: Vec<u8> = Assets::iter()
        .filter_map(|name| Assets::get(&name))
        .flat_map(|file| file.metadata.sha256_hash())
        .collect();
    portcullis_core::Sha256Digest::of(&parts).to_string()[..12].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_load_fits_into_100_kilobytes() {
        let sizes = Assets::iter().filter(|name| !name.ends_with("LICENSE"));
        let bytes: usize = sizes.filter_map(|name| Assets::get(&name)).map(|file| file.data.len()).sum();
        assert!(bytes < 80_000, "{bytes}: nothing is left for the page itself");
    }

    #[test]
    fn htmx_comes_with_its_licence() {
        assert!(Assets::get("htmx.LICENSE").is_some() && Assets::get("htmx.min.js").is_some());
    }
}

//! The script, the style and the icons, which are part of the program.

use std::sync::LazyLock;

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::digest::Digest;

struct Asset {
    name: &'static str,
    media_type: &'static str,
    bytes: &'static [u8],
}

macro_rules! asset {
    ($name:literal, $media_type:literal) => {
        Asset {
            name: $name,
            media_type: $media_type,
            bytes: include_bytes!(concat!("../../templates/dashboard/", $name)),
        }
    };
}

const ASSETS: &[Asset] = &[
    asset!("dashboard.css", "text/css; charset=utf-8"),
    asset!("dashboard.js", "text/javascript; charset=utf-8"),
    asset!("icon-attention.svg", "image/svg+xml"),
    asset!("icon-done.svg", "image/svg+xml"),
    asset!("icon-running.svg", "image/svg+xml"),
    asset!("icon.svg", "image/svg+xml"),
];

/// The hash of all assets. It is part of their addresses, so a browser can keep them.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let all: Vec<u8> = ASSETS.iter().flat_map(|asset| asset.bytes).copied().collect();
    Digest::sha256(&all).short()
});

/// The address of an asset, for templates.
pub(super) fn address(name: &str) -> String {
    format!("/assets/{name}?v={}", *VERSION)
}

pub(super) fn asset(name: &str, headers: &HeaderMap) -> Response {
    let Some(asset) = ASSETS.iter().find(|asset| asset.name == name) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let tag = format!("\"{}\"", *VERSION);
    let is_known = headers.get(header::IF_NONE_MATCH).map(HeaderValue::as_bytes) == Some(tag.as_bytes());
    let kept = [
        (
            header::CACHE_CONTROL,
            "public, max-age=31536000, immutable".to_owned(),
        ),
        (header::ETAG, tag),
        (header::CONTENT_TYPE, asset.media_type.to_owned()),
    ];
    if is_known {
        return (StatusCode::NOT_MODIFIED, kept).into_response();
    }
    (kept, asset.bytes).into_response()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn all_assets_are_small() {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        for asset in ASSETS {
            gzip.write_all(asset.bytes).unwrap();
        }
        let length = gzip.finish().unwrap().len();
        assert!(length <= 45 * 1024, "{length} bytes");
    }
}

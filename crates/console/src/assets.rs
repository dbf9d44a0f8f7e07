//! The files that browsers load. Those of others are as their makers published them: `CHECKSUMS` has their sums.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};

use crate::hex;

struct Asset {
    name: &'static str,
    kind: &'static str,
    content: &'static str,
}

const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

macro_rules! asset {
    ($name:literal, $kind:expr) => {
        Asset { name: $name, kind: $kind, content: include_str!(concat!("../assets/", $name)) }
    };
}

const ASSETS: [Asset; 8] = [
    asset!("console.css", STYLE),
    asset!("console.js", JAVASCRIPT),
    asset!("icon.svg", "image/svg+xml"),
    asset!("htmx.min.js", JAVASCRIPT),
    asset!("LICENSE-htmx", TEXT),
    asset!("uPlot.iife.min.js", JAVASCRIPT),
    asset!("uPlot.min.css", STYLE),
    asset!("LICENSE-uPlot", TEXT),
];

/// A sum over all files: the addresses of all of them change with any.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let mut all = Sha256::new();
    for asset in &ASSETS {
        all.update(asset.content);
    }
    hex(&all.finalize()[..8])
});

/// The address of a file, which browsers may keep for good.
pub(crate) fn address(name: &str) -> String {
    format!("/console/assets/{name}?{}", *VERSION)
}

/// Answers with a file.
pub(crate) async fn get(Path(name): Path<String>) -> Response {
    match ASSETS.iter().find(|asset| asset.name == name) {
        Some(asset) => {
            let headers =
                [(header::CONTENT_TYPE, asset.kind), (header::CACHE_CONTROL, "public, max-age=31536000, immutable")];
            (headers, asset.content).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_others_are_as_they_were_published() {
        let sums = include_str!("../assets/CHECKSUMS");
        let mut checked = 0;
        for line in sums.lines().filter(|line| !line.starts_with('#')) {
            let (sum, name) = line.split_once("  ").unwrap();
            let asset = ASSETS.iter().find(|asset| asset.name == name).unwrap();
            assert_eq!(hex(&Sha256::digest(asset.content)), sum, "{name}");
            checked += 1;
        }
        assert_eq!(checked, 5);
    }
}

//! The pages for people, and the files they are made of: all of them are in the binary.
//!
//! | path | what it is | in the repository |
//! |---|---|---|
//! | `/` | the dashboard | `dashboard/home/index.html` |
//! | `/play` | the playground | `dashboard/play/index.html` |
//! | `/assets/home/…`, `/assets/play/…`, `/assets/shared/…` | styles, scripts, pictures | `dashboard/…` |
//! | `/assets/client/…` | the JavaScript client, the same files that npm packs | `clients/js/src` |
//!
//! The crate sees all of them under `pages`, through links, for which `cargo package` puts the files themselves.
//!
//! They hold no secrets, so anybody may have them; what a page then asks for is decided where it asks.
//! Who embeds the router of the `rejoin` crate gets no pages.

use std::borrow::Cow;
use std::fmt::Write as _;

use axum::Router;
use axum::extract::Path;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderName, IF_NONE_MATCH,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use rust_embed::{Embed, EmbeddedFile};

#[derive(Embed)]
#[folder = "pages/home"]
struct Home;

#[derive(Embed)]
#[folder = "pages/play"]
struct PlayPage;

#[derive(Embed)]
#[folder = "pages/shared"]
struct Shared;

#[derive(Embed)]
#[folder = "pages/client"]
struct Client;

/// Scripts, styles and pictures come from here and from nowhere else; a page speaks to this server only,
/// is shown in no frame, and makes no markup out of text (`require-trusted-types-for`): what sessions say
/// is shown, never run.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

const GUARDS: [(HeaderName, &str); 5] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// The pages and their files.
pub(crate) fn routes() -> Router {
    Router::new()
        .route("/", get(|asked: HeaderMap| async move { file("home", "index.html", &asked) }))
        .route("/play", get(|asked: HeaderMap| async move { file("play", "index.html", &asked) }))
        .route("/assets/{folder}/{*path}", get(asset))
}

async fn asset(Path((folder, path)): Path<(String, String)>, asked: HeaderMap) -> Response {
    file(&folder, &path, &asked)
}

/// One file, or word that the caller's copy is still good. Copies are asked about each time: after an
/// upgrade no page is put together from two versions.
fn file(folder: &str, path: &str, asked: &HeaderMap) -> Response {
    let (Some(file), Some(kind)) = (find(folder, path), content_type(path)) else {
        return (StatusCode::NOT_FOUND, GUARDS, "There is nothing here\n").into_response();
    };
    let tag = tag(&file);
    let headers = [(ETAG, tag.clone()), (CACHE_CONTROL, "no-cache".to_owned())];
    if has(asked, &tag) {
        return (StatusCode::NOT_MODIFIED, GUARDS, headers).into_response();
    }
    let body: Cow<'static, [u8]> = file.data;
    (GUARDS, headers, [(CONTENT_TYPE, kind)], body).into_response()
}

fn find(folder: &str, path: &str) -> Option<EmbeddedFile> {
    match folder {
        "home" => Home::get(path),
        "play" => PlayPage::get(path),
        "shared" => Shared::get(path),
        "client" => Client::get(path),
        _ => None,
    }
}

/// Files of any other kind are not served.
fn content_type(path: &str) -> Option<&'static str> {
    let (_, extension) = path.rsplit_once('.')?;
    match extension {
        "html" => Some("text/html; charset=utf-8"),
        "css" => Some("text/css; charset=utf-8"),
        "js" => Some("text/javascript; charset=utf-8"),
        "svg" => Some("image/svg+xml"),
        "png" => Some("image/png"),
        _ => None,
    }
}

/// The beginning of the content's SHA-256.
fn tag(file: &EmbeddedFile) -> String {
    let mut tag = String::from("\"");
    for byte in &file.metadata.sha256_hash()[..16] {
        let _ = write!(tag, "{byte:02x}"); // a String takes everything
    }
    tag + "\""
}

/// Whether one of the copies that the caller has is this one.
fn has(asked: &HeaderMap, tag: &str) -> bool {
    let lists = asked.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    lists.flat_map(|list| list.split(',')).any(|one| {
        let one = one.trim();
        one == "*" || one.trim_start_matches("W/") == tag
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn everything() -> Vec<(&'static str, Cow<'static, str>)> {
        let home = Home::iter().map(|path| ("home", path));
        let play = PlayPage::iter().map(|path| ("play", path));
        let shared = Shared::iter().map(|path| ("shared", path));
        let client = Client::iter().map(|path| ("client", path));
        home.chain(play).chain(shared).chain(client).collect()
    }

    #[test]
    fn every_file_that_is_embedded_is_of_a_kind_that_is_served() {
        for (folder, path) in everything() {
            let answer = file(folder, &path, &HeaderMap::new());
            assert_eq!(answer.status(), StatusCode::OK, "{folder}/{path}");
        }
    }

    #[test]
    fn pages_have_no_script_or_style_of_their_own_which_the_policy_would_refuse() {
        for (folder, path) in everything().into_iter().filter(|(_, path)| path.ends_with(".html")) {
            let page = find(folder, &path).expect("it was listed");
            let text = String::from_utf8_lossy(&page.data).to_lowercase();
            for inline in ["<style", " style=", "<script>", " onclick=", "javascript:"] {
                assert!(!text.contains(inline), "{folder}/{path} has {inline}");
            }
        }
    }

    #[test]
    fn a_copy_is_known_by_its_tag_in_a_list_weak_or_not() {
        let asked =
            |value: &str| HeaderMap::from_iter([(IF_NONE_MATCH, value.parse().expect("a value"))]);
        for good in ["\"a\"", "W/\"a\"", "\"b\", \"a\"", "*"] {
            assert!(has(&asked(good), "\"a\""), "{good}");
        }
        for bad in ["\"b\"", "a", "\"A\""] {
            assert!(!has(&asked(bad), "\"a\""), "{bad}");
        }
    }
}

//! The OpenAPI document describes the server that serves it.

#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

use std::collections::BTreeSet;

use crate::common::web::Setup;

#[tokio::test]
async fn the_document_has_the_methods_that_the_router_allows() {
    let web = Setup::open().start().await;
    let document = web.get("/api/openapi.json").send().await.expect(200);
    assert_eq!(document["openapi"], "3.1.0");
    for (path, item) in document["paths"].as_object().unwrap() {
        let described: BTreeSet<_> =
            item.as_object().unwrap().keys().map(|method| method.to_uppercase()).collect();
        let answer = web.request("TRACE", &path.replace("{id}", "x")).send().await;
        answer.expect(405);
        let allowed: BTreeSet<_> = answer
            .header("allow")
            .unwrap()
            .split(',')
            .filter(|method| *method != "HEAD")
            .map(str::to_owned)
            .collect();
        assert_eq!(described, allowed, "{path}");
    }
}

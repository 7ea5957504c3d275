//! Keys that are removed or added while the server runs.

use std::process::Command;

use futures_util::StreamExt as _;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use crate::common::server_process::ServerProcess;
use crate::{PATIENCE, ask};

const BOTH: &str = "[[api_keys]]\nname = 'old'\nprincipal = 'ann'\nkey_env = 'OLD_KEY'\n\
                    [[api_keys]]\nname = 'new'\nprincipal = 'ann'\nkey_env = 'NEW_KEY'\n";
const NEW_ONLY: &str = "[[api_keys]]\nname = 'new'\nprincipal = 'ann'\nkey_env = 'NEW_KEY'\n";
const OLD: &str = "the old key of ann, long enough";
const NEW: &str = "the new key of ann, long enough";

pub(crate) fn hang_up(server: &ServerProcess) {
    let sent = Command::new("kill").args(["-HUP", &server.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

async fn status(server: &ServerProcess, key: &str) -> String {
    let key = format!("X-API-Key: {key}\r\n");
    let answer = ask(server.address(), "POST", "/api/sessions", &key, "{}").await;
    answer.split(' ').nth(1).unwrap().to_owned()
}

#[tokio::test]
async fn a_removed_key_is_rejected_and_its_connections_are_closed_after_sighup() {
    let environment = [("OLD_KEY", OLD), ("NEW_KEY", NEW)];
    let server = ServerProcess::start(Vec::new(), BOTH, &environment).await;
    let connect = |key: &'static str| {
        let url = format!("ws://{}/ws", server.address());
        async move {
            let mut request = url.into_client_request().unwrap();
            request.headers_mut().insert("x-api-key", key.parse().unwrap());
            tokio_tungstenite::connect_async(request).await.unwrap().0
        }
    };
    let (mut old, mut new) = (connect(OLD).await, connect(NEW).await);
    assert_eq!(
        (status(&server, OLD).await, status(&server, NEW).await),
        ("201".into(), "201".into())
    );
    std::fs::write(server.config(), NEW_ONLY).unwrap();
    hang_up(&server);
    let closed = async {
        loop {
            match old.next().await {
                Some(Ok(Message::Close(Some(frame)))) => return u16::from(frame.code),
                Some(Ok(_)) => {}
                other => panic!("{other:?}"),
            }
        }
    };
    assert_eq!(tokio::time::timeout(PATIENCE, closed).await.expect("it is closed"), 4102);
    assert_eq!(
        (status(&server, OLD).await, status(&server, NEW).await),
        ("401".into(), "201".into())
    );
    assert!(
        matches!(new.next().await, Some(Ok(Message::Text(_)))),
        "the greeting of one that goes on"
    );
}

#[tokio::test]
async fn a_file_with_mistakes_leaves_the_keys_as_they_were() {
    let environment = [("OLD_KEY", OLD), ("NEW_KEY", NEW)];
    let server = ServerProcess::start(Vec::new(), BOTH, &environment).await;
    std::fs::write(server.config(), "[[api_keys]]\nname = 'x'\n").unwrap();
    hang_up(&server);
    let told = || server.log().contains("stay as they were").then_some(());
    crate::eventually(told).await;
    assert_eq!(status(&server, OLD).await, "201");
    std::fs::write(server.config(), "").unwrap(); // the last key is gone: that must not let everybody in
    hang_up(&server);
    crate::eventually(|| server.log().contains("no API key is left").then_some(())).await;
    assert_eq!(status(&server, OLD).await, "401");
}

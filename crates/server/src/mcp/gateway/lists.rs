//! Lists of the server that the client has been given, and whether they still are what it was given.
//!
//! Neither a server that was started again nor one before which Rejoin was says what has changed meanwhile. So the
//! pages that the client has read are asked for again, beside its own requests: nobody waits for them.

use std::collections::HashMap;
use std::fmt;

use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::desk::{Closing, Desk};
use super::pending::Pending;
use super::rerun::{MOST_PAGES, Tools};
use crate::mcp::logged::StreamName;
use crate::mcp::message::{Message, RequestId, read, splice};
use crate::mcp::own_words::{notification, request};

/// A list of a server, and what a client is told when it has changed.
#[derive(Clone, Copy, Debug)]
struct List {
    method: &'static str,
    changed: &'static str,
}

const LISTS: [List; 3] = [
    List { method: "tools/list", changed: "notifications/tools/list_changed" },
    List { method: "prompts/list", changed: "notifications/prompts/list_changed" },
    List { method: "resources/list", changed: "notifications/resources/list_changed" },
];

/// A comparison under way.
#[derive(Debug, Default)]
pub(super) struct Comparing {
    /// Whether it is to begin as soon as the server has said something.
    pub(super) when_heard: bool,
    /// Pages that the server was asked for.
    asked: HashMap<RequestId, Asked>,
    /// Lists of which the client is to be told when it makes the next request, because it read no stream when they
    /// were found to differ, and what they are. The book says so when it was told.
    untold: Vec<(List, Pages)>,
}

/// A page that the server was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    list: List,
    at: usize,
}

impl Comparing {
    /// There is another server: what was asked of the one before is not answered any more.
    pub(super) fn stop(&mut self) {
        (self.when_heard, self.asked) = (false, HashMap::new());
    }

    /// Whether something was asked that is not answered.
    pub(super) fn is_under_way(&self) -> bool {
        !self.asked.is_empty()
    }

    /// The page that was asked for under this id, which is answered or lost now.
    pub(super) fn take(&mut self, id: &RequestId) -> Option<Asked> {
        self.asked.remove(id)
    }
}

impl Desk<'_> {
    /// Notes what the client has been given, if it is a page of a list.
    pub(super) fn note_page(&mut self, pending: &Pending, answer: &Message) {
        #[derive(Default, Deserialize)]
        struct Params {
            cursor: Option<Value>,
        }
        let list = LISTS.iter().find(|list| list.method == pending.method());
        let (Some(list), Some(result)) = (list, answer.result()) else { return };
        self.note_tools(list, result);
        let mut pages = self.pages(list);
        let at = match pending.message.read_params::<Params>().cursor {
            Some(cursor) => pages.after(&cursor),
            None => Some(0),
        };
        if at.is_some_and(|at| pages.put(at, Page::of(result).0)) {
            self.note_pages(list, &pages);
        }
        self.comparing.untold.retain(|(untold, _)| untold.method != list.method); // it knows by now
    }

    /// Asks for the lists that the client has been given, to tell it which of them differ.
    pub(super) fn compare_lists(&mut self) {
        if !self.keeping.book().initialized {
            return;
        }
        for list in LISTS {
            if self.keeping.book().lists.contains_key(list.method) {
                self.ask_for_page(Asked { list, at: 0 }, None);
            }
        }
    }

    fn ask_for_page(&mut self, asked: Asked, cursor: Option<&Value>) {
        let id = self.own_id();
        let params = cursor.and_then(|cursor| to_raw_value(&json!({ "cursor": cursor })).ok());
        self.comparing.asked.insert(id.clone(), asked);
        self.tell_server(request(&id, asked.list.method, params.as_deref()));
    }

    /// The server has answered with a page, or that it has none.
    pub(super) async fn on_page(&mut self, asked: Asked, answer: &Message) -> Result<(), Closing> {
        let Some(result) = answer.result() else { return Ok(()) };
        let ((page, cursor), Asked { list, at }) = (Page::of(result), asked);
        self.note_tools(&list, result);
        let mut pages = self.pages(&list);
        // If it is not known, its client has begun to read the list again.
        let Some(known) = pages.0.get(at) else { return Ok(()) };
        if known.digest == page.digest {
            if pages.0.len() > at + 1 {
                self.ask_for_page(Asked { list, at: at + 1 }, cursor.as_ref());
            }
            return Ok(());
        }
        pages.put(at, page);
        match self.client_hears() {
            true => self.note_pages(&list, &pages),
            false => self.comparing.untold.push((list, pages)),
        }
        self.tell_changed(list.changed).await
    }

    /// Calls of tools that the server lists are counted under their names.
    fn note_tools(&self, list: &List, page: &RawValue) {
        if list.method == LISTS[0].method {
            self.shared.metrics.tool_calls.listed(Tools::on_page(Some(page)).names());
        }
    }

    fn note_pages(&mut self, list: &List, pages: &Pages) {
        self.keeping.change().lists.insert(list.method.to_owned(), pages.to_string());
    }

    /// Tells a client that makes a request what it could not be told before.
    pub(super) async fn tell_untold(&mut self) -> Result<(), Closing> {
        if self.comparing.untold.is_empty() || !self.client_hears() {
            return Ok(());
        }
        for (list, pages) in std::mem::take(&mut self.comparing.untold) {
            self.note_pages(&list, &pages);
            self.tell_changed(list.changed).await?;
        }
        Ok(())
    }

    async fn tell_changed(&mut self, changed: &str) -> Result<(), Closing> {
        self.say(self.stream_of_no_request(), &notification(changed, &json!({}))).await
    }

    /// Whether what belongs to no request has a stream on which the client is told now.
    fn client_hears(&self) -> bool {
        let read = [StreamName::general(), StreamName::whole()].iter().any(|s| self.hub.is_read(s));
        read || self.requests.newest_stream().is_some()
    }

    fn pages(&self, list: &List) -> Pages {
        self.keeping.book().lists.get(list.method).map_or(Pages(Vec::new()), |text| Pages::of(text))
    }
}

/// The pages of a list that the client has read, in order. In the book they are words.
#[derive(Debug, PartialEq)]
struct Pages(Vec<Page>);

/// What is known of a page: `<digest>`, and if another one follows it, `/<digest of the cursor>`.
#[derive(Debug, PartialEq)]
struct Page {
    digest: String,
    next: Option<String>,
}

impl Pages {
    fn of(text: &str) -> Self {
        let page = |word: &str| match word.split_once('/') {
            Some((digest, next)) => Page { digest: digest.into(), next: Some(next.into()) },
            None => Page { digest: word.into(), next: None },
        };
        Self(text.split_whitespace().map(page).collect())
    }

    /// Which page a cursor leads to, if it came with one of these.
    fn after(&self, cursor: &Value) -> Option<usize> {
        let cursor = Some(digest(&cursor.to_string()));
        self.0.iter().position(|page| page.next == cursor).map(|at| at + 1)
    }

    /// Puts a page in its place; says whether it was another one. Those after it hang on its cursor.
    fn put(&mut self, at: usize, page: Page) -> bool {
        if at >= MOST_PAGES || self.0.get(at) == Some(&page) {
            return false;
        }
        self.0.truncate(at);
        self.0.push(page);
        true
    }
}

impl fmt::Display for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Page { digest, next }) in self.0.iter().enumerate() {
            let space = if at > 0 { " " } else { "" };
            write!(f, "{space}{digest}")?;
            if let Some(next) = next {
                write!(f, "/{next}")?;
            }
        }
        Ok(())
    }
}

impl Page {
    /// What is to be known of a page, and its cursor. That is left out of its digest: it may be good for one
    /// process only.
    fn of(result: &RawValue) -> (Self, Option<Value>) {
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct Cursor<'a> {
            #[serde(borrow)]
            next_cursor: Option<&'a RawValue>,
        }
        let cursor = read::<Cursor<'_>>(Some(result)).next_cursor;
        let value = cursor.and_then(|cursor| serde_json::from_str::<Value>(cursor.get()).ok());
        let next = value.as_ref().map(|cursor| digest(&cursor.to_string()));
        let digest = match cursor {
            Some(cursor) => digest(&splice(result.get(), cursor.get(), "")),
            None => digest(result.get()),
        };
        (Self { digest, next }, value)
    }
}

fn digest(text: &str) -> String {
    let digest = Sha256::digest(text);
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(text: &str) -> Page {
        Page::of(&RawValue::from_string(text.to_owned()).unwrap()).0
    }

    #[test]
    fn a_page_is_the_same_whatever_its_cursor_but_not_without_one() {
        let [one, other, last] = [
            r#"{"tools":[1],"nextCursor":"a"}"#,
            r#"{"tools":[1],"nextCursor":"b"}"#,
            r#"{"tools":[1]}"#,
        ]
        .map(page);
        assert_eq!(one.digest, other.digest);
        assert_ne!(one.next, other.next);
        assert_ne!(one.digest, last.digest);
    }

    #[test]
    fn pages_are_kept_in_the_order_of_their_cursors() {
        let mut pages = Pages(Vec::new());
        assert!(pages.put(0, page(r#"{"tools":[1],"nextCursor":"\u0061"}"#)));
        assert_eq!(pages.after(&json!("a")), Some(1));
        assert_eq!(pages.after(&json!("b")), None);
        assert!(pages.put(1, page(r#"{"tools":[2]}"#)));
        let again = Pages::of(&pages.to_string());
        assert_eq!(again, pages);
        assert!(!pages.put(0, page(r#"{"tools":[1],"nextCursor":"a"}"#)), "it is what it was");
        assert!(pages.put(0, page(r#"{"tools":[1],"nextCursor":"c"}"#)));
        assert_eq!(pages.0.len(), 1);
    }
}

//! The cases as they stand in their files, with names looked up and patches merged in.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Value, json};

/// A case, or a scene that cases begin with.
#[derive(Clone, Deserialize)]
pub(crate) struct Case {
    #[serde(default)]
    pub(crate) name: String,
    pub(crate) scene: Option<String>,
    pub(crate) saved: Option<Value>,
    pub(crate) options: Option<Value>,
    pub(crate) steps: Vec<Step>,
}

/// Something happens, and something is expected.
#[derive(Clone, Deserialize)]
pub(crate) struct Step {
    #[serde(default)]
    pub(crate) after_ms: u64,
    #[serde(rename = "in")]
    pub(crate) happens: Value,
    pub(crate) out: Option<Vec<Value>>,
    /// Present and null means that no deadline is expected; serde would take that for absent.
    #[serde(default, deserialize_with = "present")]
    pub(crate) next_ms: Option<Value>,
}

fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// Everything in `conformance/`.
pub(crate) struct Book {
    pub(crate) cases: Vec<Case>,
    scenes: Value,
    frames: Value,
}

impl Book {
    pub(crate) fn open() -> Self {
        #[derive(Deserialize)]
        struct File {
            cases: Vec<Case>,
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance");
        let mut files: Vec<PathBuf> =
            root.join("cases").read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        let cases = files.iter().flat_map(|path| {
            let file: File =
                serde_json::from_value(json_in(path)).expect("it has the shape of cases");
            file.cases
        });
        Self {
            cases: cases.collect(),
            scenes: json_in(&root.join("scenes.json")),
            frames: json_in(&root.join("frames.json")),
        }
    }

    /// The case with the scenes it begins with, the first of them first.
    pub(crate) fn chapters(&self, case: &Case) -> Vec<Case> {
        let mut chapters = vec![case.clone()];
        while let Some(name) = chapters[0].scene.clone() {
            let scene = serde_json::from_value(self.scenes[&name].clone());
            chapters.insert(0, scene.unwrap_or_else(|why| panic!("scene {name}: {why}")));
        }
        chapters
    }

    /// A frame, or a saved state, by its name or in full, with the patch merged in.
    pub(crate) fn named(&self, name: &Value, patch: Option<&Value>) -> Value {
        let mut value =
            name.as_str().map_or_else(|| name.clone(), |name| self.frames[name].clone());
        assert!(!value.is_null(), "nothing is named {name}");
        if let Some(patch) = patch {
            merge(&mut value, patch);
        }
        value
    }

    /// What is saved, with all its members.
    pub(crate) fn saved(&self, name: &Value, patch: Option<&Value>) -> Value {
        let named = self.named(name, patch);
        json!({
            "session_id": named["session_id"], "position": named["position"],
            "token": named["token"], "snapshot": named["snapshot"],
        })
    }

    /// An expected output in full; several if it stands for several.
    pub(crate) fn expected(&self, output: &Value) -> Vec<Value> {
        let patch = output.get("with");
        if let Some(frame) = output.get("send") {
            return vec![json!({ "send": without_nulls(self.named(frame, patch)) })];
        }
        if let Some(saved) = output.get("save") {
            return vec![json!({ "save": self.saved(saved, patch) })];
        }
        match output.get("events") {
            Some(ends) => seqs(ends).map(|seq| json!({ "event": seq })).collect(),
            None => vec![output.clone()],
        }
    }
}

/// The numbers from the first to the last of two.
pub(crate) fn seqs(ends: &Value) -> impl Iterator<Item = u64> + use<> {
    ends[0].as_u64().unwrap()..=ends[1].as_u64().unwrap()
}

/// In frames, absent and null are the same.
pub(crate) fn without_nulls(mut value: Value) -> Value {
    if let Value::Object(members) = &mut value {
        members.retain(|_, member| !member.is_null());
        for member in members.values_mut() {
            *member = without_nulls(member.take());
        }
    }
    value
}

/// RFC 7386.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let Value::Object(members) = target else { return };
    for (key, value) in patch {
        if value.is_null() {
            members.remove(key);
        } else {
            merge(members.entry(key).or_insert(Value::Null), value);
        }
    }
}

fn json_in(path: &Path) -> Value {
    let text =
        std::fs::read_to_string(path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

//! A file that is new in one of the folders that the binary embeds is no reason for cargo to build it again;
//! the folders' own dates are.

fn main() {
    for folder in ["home", "play", "shared", "client"] {
        println!("cargo::rerun-if-changed=pages/{folder}");
    }
}

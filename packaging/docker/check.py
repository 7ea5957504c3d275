"""Compares Dockerfile, compose.yaml and the image's settings: files that are copied exist, port, volume and user are
the same in all of them, and the image neither runs as root nor goes without a health check."""

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    settings = tomllib.loads((ROOT / "packaging/docker/rejoin.toml").read_text())
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())
    service = compose["services"]["rejoin"]
    final = dockerfile[dockerfile.rindex("\nFROM "):]
    port, data = settings["listen"].split(":")[1], settings["data_dir"]

    for copied in re.findall(r"^COPY (?!--from)(.+)$", dockerfile, re.MULTILINE):
        for source in copied.split()[:-1]:
            assert (ROOT / source).exists(), f"{source} is copied and not there"
    assert re.search(r"^USER 10001:10001$", final, re.MULTILINE), "the image runs as root"
    assert re.search(rf"^VOLUME {data}$", final, re.MULTILINE), "the sessions are in no volume"
    assert re.search(rf"^EXPOSE {port}$", final, re.MULTILINE)
    assert f"http://127.0.0.1:{port}/readyz" in final, "the health check asks something else"
    assert service["ports"] == [f"127.0.0.1:{port}:{port}"], service["ports"]
    assert service["volumes"] == [f"sessions:{data}"] and "sessions" in compose["volumes"]
    keys = {key["key_env"] for key in settings["api_keys"]}
    assert keys == set(service["environment"]), "compose.yaml and rejoin.toml name different keys"
    toolchain = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["rust-version"]
    assert f"FROM rust:{toolchain}-" in dockerfile, f"the image is not built with Rust {toolchain}"
    print("compose.yaml, Dockerfile and the settings of the image agree")


main()

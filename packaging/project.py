"""What every package says about the project, taken from Cargo.toml, and the platforms there are binaries for."""

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LICENCE_FILES = [ROOT / "LICENSE-MIT", ROOT / "LICENSE-APACHE"]


@dataclass(frozen=True)
class Platform:
    """A target of the Rust compiler, as the package managers name it."""

    target: str
    npm_os: str
    npm_cpu: str
    wheel_tag: str
    brew: tuple[str, str]

    @property
    def npm_package(self) -> str:
        return f"rejoin-{self.npm_os}-{self.npm_cpu}"


# Linux binaries are static, so one runs with glibc and with musl.
PLATFORMS = {
    platform.target: platform
    for platform in [
        Platform("x86_64-unknown-linux-musl", "linux", "x64",
                 "manylinux_2_17_x86_64.musllinux_1_1_x86_64", ("linux", "intel")),
        Platform("aarch64-unknown-linux-musl", "linux", "arm64",
                 "manylinux_2_17_aarch64.musllinux_1_1_aarch64", ("linux", "arm")),
        Platform("x86_64-apple-darwin", "darwin", "x64", "macosx_10_12_x86_64", ("macos", "intel")),
        Platform("aarch64-apple-darwin", "darwin", "arm64", "macosx_11_0_arm64", ("macos", "arm")),
    ]
}


@dataclass(frozen=True)
class Project:
    version: str
    description: str
    licence: str
    repository: str


def project() -> Project:
    command = ["cargo", "metadata", "--format-version", "1", "--no-deps", "--offline"]
    packages = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)["packages"]
    cli = next(package for package in packages if package["name"] == "rejoin-cli")
    return Project(cli["version"], cli["description"], cli["license"], cli["repository"])


def platform(target: str, binary: Path) -> Platform:
    """The platform of a binary. One that is linked with glibc (for tests) runs where glibc is as new."""
    if not target.endswith("-linux-gnu"):
        return PLATFORMS[target]
    static = PLATFORMS[target.replace("-gnu", "-musl")]
    minor = glibc_minor(binary)
    cpu = target.split("-")[0]
    return Platform(target, static.npm_os, static.npm_cpu, f"manylinux_2_{minor}_{cpu}", static.brew)


def glibc_minor(binary: Path) -> int:
    """The newest glibc 2.x that a binary needs a symbol of; 0 if it needs none."""
    needs = subprocess.run(["readelf", "--version-info", binary], check=True, capture_output=True, text=True).stdout
    return max((int(minor) for minor in re.findall(r"GLIBC_2\.(\d+)", needs)), default=0)


def date() -> int:
    """The time stamped on everything that is packed, so that the same sources give the same bytes."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    command = ["git", "log", "-1", "--format=%ct"]
    return int(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)

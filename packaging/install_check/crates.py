"""The crates as crates.io gets them: packed, unpacked outside of the repository, and built there one by one."""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from talk import PAGES, ROOT

# In the order in which they are published.
CRATES = ["rejoin-core", "rejoin-store", "rejoin", "rejoin-client", "rejoin-rmcp", "rejoin-cli"]

# What crates.io shows, and what the licences ask for.
WANTED_FIELDS = ["description", "license", "repository", "keywords", "categories", "readme"]
WANTED_FILES = ["Cargo.lock", "LICENSE-APACHE", "LICENSE-MIT", "README.md"]


def unpacked() -> dict[str, Path]:
    """Packs all crates and unpacks them into an empty directory, outside of the repository and its settings of cargo."""
    command = ["cargo", "package", "--no-verify", "--allow-dirty", "--quiet"]
    for name in CRATES:
        command += ["-p", name]
    subprocess.run(command, cwd=ROOT, check=True)
    # The same place each time: the names of what cargo builds depend on it, and would pile up.
    where = Path(tempfile.gettempdir()) / f"rejoin-crates-{hashlib.sha256(str(ROOT).encode()).hexdigest()[:12]}"
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir()
    crates = {}
    for name in CRATES:
        (packed,) = (target() / "package").glob(f"{name}-[0-9]*.crate")
        # With dates of now (-m): those in the archive are so old that cargo would take any change for built.
        subprocess.run(["tar", "-xzmf", packed, "-C", where], check=True)
        crates[name] = where / packed.stem
    return crates


def target() -> Path:
    return Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target").resolve()


# The repository's `dev` profile, so that dependencies which it has built are used again.
PROFILE = ["--config", 'profile.dev.debug="line-tables-only"', "--config", 'profile.dev.package."*".opt-level=1']


def check_contents(name: str, folder: Path) -> None:
    manifest = (folder / "Cargo.toml").read_text()
    for field in WANTED_FIELDS:
        assert re.search(rf"^{field} = ", manifest, re.MULTILINE), f"{name} says no {field}"
    for file in WANTED_FILES:
        assert (folder / file).is_file(), f"{name} has no {file}"
    for licence in ["LICENSE-APACHE", "LICENSE-MIT"]:
        check_same(folder / licence, ROOT / licence)
    if name == "rejoin-cli":
        for page, source in PAGES.items():
            for file in sorted((ROOT / source).iterdir()):
                check_same(folder / "pages" / page / file.name, file)


def check_same(packed: Path, source: Path) -> None:
    """Licences and pages are links in the repository, and a link that became a file has the name of its target in it."""
    assert packed.is_file(), f"{packed} is missing"
    assert packed.read_bytes() == source.read_bytes(), f"{packed} is not {source}"


def siblings(folder: Path, crates: dict[str, Path]) -> list[str]:
    """Options with which a crate finds its siblings, which are on no registry, beside it. Its lock file has them from
    the registry; it must not, for `--locked`."""
    lock = folder / "Cargo.lock"
    entries = lock.read_text().split("[[package]]\n")
    options = []
    for number, entry in enumerate(entries):
        name = (re.match(r'name = "(.+)"', entry) or [None, None])[1]
        if name in crates:
            entries[number] = re.sub(r"^(source|checksum) = .*\n", "", entry, flags=re.MULTILINE)
            if crates[name] != folder:
                options += ["--config", f'patch.crates-io.{name}.path="{crates[name]}"']
                options += ["--config", f"profile.dev.package.{name}.opt-level=0"]
    lock.write_text("[[package]]\n".join(entries))
    return options


def cargo(arguments: list[str], folder: Path, crates: dict[str, Path]) -> None:
    env = os.environ | {"CARGO_TARGET_DIR": str(target())}
    env.pop("LIBSQLITE3_FLAGS", None)
    command = ["cargo", *arguments, "--locked", "--quiet", *siblings(folder, crates), *PROFILE]
    subprocess.run(command, cwd=folder, env=env, check=True)

"""The npm packages: `rejoin`, a launcher, and for each platform a package with the binary and nothing to run at
installation. npm installs the one whose `os` and `cpu` fit."""

import json
from pathlib import Path

from archive import tar_gz
from project import LICENCE_FILES, PLATFORMS, Platform, Project

HERE = Path(__file__).parent / "npm"


def make_launcher(project: Project, dist: Path) -> Path:
    about = common(project, "rejoin", project.description) | {
        "bin": {"rejoin": "rejoin.js"},
        "engines": {"node": ">=18"},
        "keywords": ["agents", "mcp", "sessions", "reconnect", "websocket"],
        "optionalDependencies": {platform.npm_package: project.version for platform in PLATFORMS.values()},
    }
    files = {name: (HERE / name).read_bytes() for name in ["rejoin.js", "README.md"]}
    return pack(about, files, dist)


def make_platform(project: Project, platform: Platform, binary: Path, dist: Path) -> Path:
    what = f"The binary of rejoin for {platform.npm_os} on {platform.npm_cpu}; install rejoin"
    about = common(project, platform.npm_package, what) | {
        "os": [platform.npm_os],
        "cpu": [platform.npm_cpu],
        "preferUnplugged": True,  # Yarn must not leave the binary in an archive
    }
    return pack(about, {"bin/rejoin": binary.read_bytes()}, dist)


def common(project: Project, name: str, description: str) -> dict:
    return {
        "name": name,
        "version": project.version,
        "description": description,
        "license": f"({project.licence})",
        "repository": {"type": "git", "url": f"git+{project.repository}.git"},
        "homepage": project.repository,
    }


def pack(about: dict, files: dict[str, bytes], dist: Path) -> Path:
    """Writes what `npm pack` would: everything under `package/`, programs executable."""
    members = {"package/package.json": (json.dumps(about, indent=2).encode() + b"\n", 0o644)}
    for name, content in files.items():
        is_program = name in ("rejoin.js", "bin/rejoin")
        members[f"package/{name}"] = (content, 0o755 if is_program else 0o644)
    for text in LICENCE_FILES:
        members[f"package/{text.name}"] = (text.read_bytes(), 0o644)
    return tar_gz(dist / f"{about['name']}-{about['version']}.tgz", members)

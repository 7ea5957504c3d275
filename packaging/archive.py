"""The archive of a platform: the binary, the README and the licences, in a folder of its own."""

import gzip
import io
import tarfile
from pathlib import Path

from project import LICENCE_FILES, ROOT, Platform, Project, date


def tar_gz(file: Path, members: dict[str, tuple[bytes, int]]) -> Path:
    """Writes `members`, a name to its content and mode, in this order and with one date."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, (content, mode) in members.items():
            about = tarfile.TarInfo(name)
            about.size, about.mode, about.mtime = len(content), mode, date()
            tar.addfile(about, io.BytesIO(content))
    file.write_bytes(gzip.compress(buffer.getvalue(), mtime=date()))
    return file


def make(project: Project, platform: Platform, binary: Path, dist: Path) -> Path:
    folder = f"rejoin-{project.version}-{platform.target}"
    members = {f"{folder}/rejoin": (binary.read_bytes(), 0o755)}
    for text in [ROOT / "README.md", *LICENCE_FILES]:
        members[f"{folder}/{text.name}"] = (text.read_bytes(), 0o644)
    return tar_gz(dist / f"{folder}.tar.gz", members)

"""The packages of the clients, `rejoin-client` for PyPI (sdist and wheel) and for npm, built by their own tools from
clients/python and clients/js. They are of no platform."""

import hashlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from archive import tar_gz
from project import ROOT, Project, date

REQUIREMENTS = Path(__file__).parent / "requirements-clients.txt"


def make_python(project: Project, dist: Path) -> list[Path]:
    env = os.environ | {"SOURCE_DATE_EPOCH": str(date())}
    command = [build_environment() / "bin/python", "-m", "build", "--no-isolation", "--outdir", dist]
    subprocess.run([*command, ROOT / "clients/python"], env=env, check=True, stdout=subprocess.DEVNULL)
    made = [dist / f"rejoin_client-{project.version}{ending}" for ending in (".tar.gz", "-py3-none-any.whl")]
    for file in made:
        assert file.is_file(), f"{file.name} was not made: clients/python/pyproject.toml has another version"
    return made


def build_environment() -> Path:
    """A virtual environment with what builds the package, which is made once."""
    target = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
    venv = target / f"packaging-clients-{hashlib.md5(REQUIREMENTS.read_bytes()).hexdigest()[:8]}"
    if not (venv / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)
        subprocess.run([venv / "bin/pip", "install", "--quiet", "-r", REQUIREMENTS], check=True)
        (venv / "ready").touch()
    return venv


def make_npm(project: Project, dist: Path) -> Path:
    folder = ROOT / "clients/js"
    with tempfile.TemporaryDirectory() as made:
        # The compiler writes the types that are packed.
        subprocess.run(["npm", "ci", "--no-progress", "--loglevel=error"], cwd=folder, check=True)
        pack = ["npm", "pack", "--silent", "--pack-destination", made]
        subprocess.run(pack, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        (packed,) = Path(made).iterdir()
        members = contents(packed)
    about = json.loads(members["package/package.json"][0])
    assert about["version"] == project.version, "clients/js/package.json has another version"
    # npm compares it with where the package was built.
    about |= {"repository": {"type": "git", "url": f"git+{project.repository}.git"}, "homepage": project.repository}
    members["package/package.json"] = (json.dumps(about, indent=2).encode() + b"\n", 0o644)
    return tar_gz(dist / f"rejoin-client-{project.version}.tgz", members)


def contents(archive: Path) -> dict[str, tuple[bytes, int]]:
    with tarfile.open(archive) as tar:
        return {member.name: (tar.extractfile(member).read(), 0o644) for member in tar if member.isfile()}

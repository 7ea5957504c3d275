"""An environment like that of a machine that has only a few programs, and nothing of this repository."""

import os
import shutil
import subprocess
import sys
from pathlib import Path


def environment(home: Path, programs: dict[str, str]) -> dict[str, str]:
    """`programs` and no others are in the path; the home directory is empty."""
    bin_directory = home / "only"
    bin_directory.mkdir(parents=True)
    for name, file in programs.items():
        (bin_directory / name).symlink_to(file)
    return {"HOME": str(home), "PATH": str(bin_directory), "LANG": "C.UTF-8"}


def found(name: str) -> str:
    """The program itself, not a shim that picks a version by the directory it is called in."""
    if name == "python3":
        return os.path.realpath(sys.executable)
    return shutil.which(name) or sys.exit(f"install-check needs {name}")


def uv(tools: Path) -> Path:
    """The directory of uv, installed for this check alone."""
    venv = tools / "uv-0.13.8"
    if not (venv / "ready").exists():
        shutil.rmtree(venv, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        subprocess.run([venv / "bin/pip", "install", "--quiet", "uv==0.13.8"], check=True)
        (venv / "ready").touch()
    return venv / "bin"

"""Carries the binary of Rejoin, and starts it."""

import os
import sys
from pathlib import Path

__all__ = ["binary", "main"]


def binary() -> Path:
    """Where the binary is: for supervisors, which should start it directly."""
    return Path(__file__).parent / "bin" / "rejoin"


def main() -> None:
    """Becomes the binary, so that signals and exit codes are its own."""
    file = str(binary())
    os.execv(file, [file, *sys.argv[1:]])

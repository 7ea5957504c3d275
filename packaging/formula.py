"""The Homebrew formula, for the platforms whose archives are there."""

import hashlib
from pathlib import Path

from project import PLATFORMS, Platform, Project

TEMPLATE = Path(__file__).parent / "homebrew" / "rejoin.rb.in"


def make(project: Project, dist: Path) -> Path:
    found = {}
    for platform in PLATFORMS.values():
        archive = dist / f"rejoin-{project.version}-{platform.target}.tar.gz"
        if archive.exists():
            found.setdefault(platform.brew[0], []).append(block(project, platform, archive))
    systems = "\n".join(f"  on_{system} do\n{''.join(blocks)}  end\n" for system, blocks in sorted(found.items()))
    text = TEMPLATE.read_text()
    for name in ["repository", "version"]:
        text = text.replace(f"@{name}@", getattr(project, name))
    formula = dist / "rejoin.rb"
    formula.write_text(text.replace("@archives@\n", f"{systems}\n" if systems else ""))
    return formula


def block(project: Project, platform: Platform, archive: Path) -> str:
    url = f"{project.repository}/releases/download/v{project.version}/{archive.name}"
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    return f'    on_{platform.brew[1]} do\n      url "{url}"\n      sha256 "{digest}"\n    end\n'

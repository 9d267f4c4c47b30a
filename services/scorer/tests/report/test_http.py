"""The HTTP server: what it hands out, and what it never does."""

import asyncio
import io
import random
from contextlib import asynccontextmanager

import aiohttp
import pytest

from tau2eval_common.errors import NotFound, Unavailable
from tau2eval_scorer.http import ReportServer
from tau2eval_scorer.report import content_security_policy
from tau2eval_scorer.storage import StoredFile

WAV = random.Random(1).randbytes(1_024_000)


class Source:
    """Pages and files that are in memory."""

    def __init__(self):
        self.files = {
            "all_metrics.json": b"{}",
            "s/conversation_log.wav": WAV,
            "s/events.jsonl": b"{}\n",
            "s/record.pb": b"\x00",
            "s/empty.wav": b"",
            "s/evil.html": b"<script>1</script>",
        }
        self.gone, self.fault = set(), None
        self.opened = []

    async def runs(self):
        run = {"run_id": "run-1", "created_at": "then", "finished_at": ""}
        return [{**run, "planned": 2, "passed": 1, "failed": 0, "not_run": 1}]

    async def page(self, run_id, path):
        if self.fault is not None:
            raise self.fault
        if (run_id, path) not in (("run-1", "report.html"), ("run-1", "s/report.html")):
            raise NotFound(f"no {path}")
        return f"<!doctype html><title>{path}</title>".encode()

    async def find(self, run_id, path):
        if run_id != "run-1" or path not in self.files:
            raise NotFound(f"no {path}")
        return StoredFile(path, path, len(self.files[path]))

    async def open(self, file):
        if file.path in self.gone:
            raise FileNotFoundError(file.path)
        self.opened.append(io.BytesIO(self.files[file.path]))
        return self.opened[-1]


@asynccontextmanager
async def served(source=None, host="127.0.0.1"):
    source = source or Source()
    server = ReportServer(source, host, 0)
    assert server.address == ""
    await server.start()
    try:
        timeout = aiohttp.ClientTimeout(total=20)
        async with aiohttp.ClientSession(f"http://{server.address}", timeout=timeout) as http:
            yield http, source, server
    finally:
        await server.stop()
        await server.stop()  # Again costs nothing.


async def raw(address, text):
    """Sends a request as it stands: clients tidy up what must be seen here."""
    host, port = address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(text.encode())
    answer = await asyncio.wait_for(reader.read(), 20)
    writer.close()
    return answer


async def all_closed(source):
    """Waits until no file is open: a client has the last byte before the server is done."""
    async with asyncio.timeout(20):
        while not all(stream.closed for stream in source.opened):
            await asyncio.sleep(0.01)


async def test_pages_and_files_come_with_their_types_and_headers():
    async with served() as (http, source, _):
        for path, kind in (
            ("/", "text/html; charset=utf-8"),
            ("/runs/run-1/report.html", "text/html; charset=utf-8"),
            ("/runs/run-1/s/report.html", "text/html; charset=utf-8"),
            ("/runs/run-1/all_metrics.json", "application/json"),
            ("/runs/run-1/s/events.jsonl", "text/plain; charset=utf-8"),
            ("/runs/run-1/s/conversation_log.wav", "audio/wav"),
            ("/runs/run-1/s/record.pb", "application/octet-stream"),
        ):
            async with http.get(path) as answer:
                assert answer.status == 200, path
                body = await answer.read()
                assert answer.headers["Content-Type"] == kind
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                assert answer.headers["X-Frame-Options"] == "DENY"
                assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
                assert "aiohttp" not in answer.headers["Server"].lower()
                length = int(answer.headers["Content-Length"])
                assert length == len(body)
            async with http.head(path) as answer:
                assert (answer.status, await answer.read()) == (200, b"")
                assert int(answer.headers["Content-Length"]) == length
        async with http.get("/runs/run-1/report.html") as answer:
            assert answer.headers["Content-Security-Policy"] == content_security_policy()
        async with http.get("/") as answer:
            assert "/runs/run-1/report.html" in await answer.text()
        async with http.get("/runs/run-1/s/evil.html") as answer:
            # Not one of our pages: its script is not run.
            assert "script-src" not in answer.headers["Content-Security-Policy"]
        await all_closed(source)


async def test_a_run_without_a_path_leads_to_its_page():
    async with served() as (http, _, _):
        for path in ("/runs/run-1", "/runs/run-1/"):
            async with http.get(path) as answer:
                assert str(answer.url).endswith("/runs/run-1/report.html")
        async with http.get("/runs/%2F%2Fevil.example", allow_redirects=False) as answer:
            assert answer.headers.get("Location", "/runs/").startswith("/runs/")


@pytest.mark.parametrize(
    ("asked", "status", "body"),
    [
        ("bytes=0-0", 206, WAV[:1]),
        ("bytes=10-19", 206, WAV[10:20]),
        ("bytes=1000000-", 206, WAV[1_000_000:]),
        ("bytes=300000-900000", 206, WAV[300_000:900_001]),
        ("bytes=-5", 206, WAV[-5:]),
        ("bytes=-99999999", 200, WAV),
        ("bytes=5-99999999", 206, WAV[5:]),
        ("bytes=0-", 200, WAV),
        ("bytes=1024000-", 416, None),
        ("bytes=-0", 416, None),
        # What HTTP lets a server ignore is answered with the whole file.
        ("bytes=9-5", 200, WAV),
        ("bytes=0-1,4-5", 200, WAV),
        ("bytes=-", 200, WAV),
        ("bytes=a-b", 200, WAV),
        ("lines=0-1", 200, WAV),
        ("bytes=0-" + "9" * 400, 200, WAV),
    ],
)
async def test_parts_of_a_recording(asked, status, body):
    async with served() as (http, source, _):
        path = "/runs/run-1/s/conversation_log.wav"
        async with http.get(path, headers={"Range": asked}) as answer:
            assert answer.status == status
            content = await answer.read()
            if body is not None:
                assert content == body
            if status == 206:
                first = WAV.index(body) if len(body) > 4 else int(asked[6:].partition("-")[0])
                last = first + len(body) - 1
                assert answer.headers["Content-Range"] == f"bytes {first}-{last}/{len(WAV)}"
            if status == 416:
                assert answer.headers["Content-Range"] == f"bytes */{len(WAV)}"
        await all_closed(source)


async def test_a_part_of_an_older_file_is_answered_with_the_whole_new_one():
    async with served() as (http, _, _):
        path = "/runs/run-1/s/conversation_log.wav"
        async with http.get(path) as answer:
            tag = answer.headers["ETag"]
        for given, status in ((tag, 206), ('"another"', 200)):
            headers = {"Range": "bytes=0-1", "If-Range": given}
            async with http.get(path, headers=headers) as answer:
                assert answer.status == status
        async with http.get("/runs/run-1/s/empty.wav", headers={"Range": "bytes=0-"}) as answer:
            assert answer.status == 416


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/runs",
        "/runs/run-2/report.html",
        "/runs/run-1/s/.hidden",
        "/runs/run-1/../../etc/passwd",
        "/runs/run-1/%2e%2e/%2e%2e/etc/passwd",
        "/runs/run-1/s/..%2f..%2fall_metrics.json",
        "/runs/run-1//etc/passwd",
        "/runs/run-1/s%00/x",
        "/runs/..%2frun-1/report.html",
        "/runs/run-1/s\\..\\x",
    ],
)
async def test_what_is_not_there_is_not_found_and_nothing_else_is_reached(path):
    async with served() as (_, source, server):
        answer = await raw(
            server.address,
            f"GET {path} HTTP/1.1\r\nHost: {server.address}\r\nConnection: close\r\n\r\n",
        )
        status = int(answer.split()[1])
        assert status in (400, 404), answer[:200]
        assert b"root:" not in answer
        assert not source.opened


async def test_only_reading_is_allowed():
    async with served() as (http, _, _):
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            async with http.request(method, "/runs/run-1/report.html") as answer:
                assert answer.status == 405
                assert "GET" in answer.headers["Allow"]


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("127.0.0.1:1", 200),
        ("localhost", 200),
        ("[::1]:80", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("[", 421),
        ("", 421),
    ],
)
async def test_another_sites_name_for_this_machine_is_refused(name, status):
    async with served() as (_, _, server):
        answer = await raw(
            server.address, f"GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n"
        )
        assert int(answer.split()[1]) in (status, 400 if status == 421 else status), answer[:300]


async def test_faults_are_pages_that_tell_no_secrets():
    async with served() as (http, source, _):
        path = "/runs/run-1/report.html"
        source.fault = RuntimeError("a secret")
        async with http.get(path) as answer:
            assert answer.status == 500
            assert "secret" not in await answer.text()
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
        source.fault = Unavailable("the artifacts are away; ask again")
        async with http.get(path) as answer:
            assert answer.status == 503
            assert "ask again" in await answer.text()
        source.gone.add("s/events.jsonl")
        async with http.get("/runs/run-1/s/events.jsonl") as answer:
            assert answer.status == 503


async def test_a_reader_that_leaves_in_the_middle_is_no_error(caplog):
    async with served() as (http, source, server):
        for _ in range(5):
            host, port = server.address.rsplit(":", 1)
            reader, writer = await asyncio.open_connection(host, int(port))
            path = "/runs/run-1/s/conversation_log.wav"
            writer.write(f"GET {path} HTTP/1.1\r\nHost: {server.address}\r\n\r\n".encode())
            await reader.readexactly(1000)
            writer.transport.abort()
        await all_closed(source)
        async with http.get("/runs/run-1/all_metrics.json") as answer:
            assert await answer.read() == b"{}"
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_file_that_becomes_shorter_is_never_a_whole_answer():
    async with served() as (http, source, _):
        original = source.find

        async def longer(run_id, path):
            file = await original(run_id, path)
            return StoredFile(file.path, file.location, file.size + 100)

        source.find = longer
        with pytest.raises((aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError)):
            async with http.get("/runs/run-1/s/conversation_log.wav") as answer:
                await answer.read()
        await all_closed(source)


async def test_a_taken_port_is_an_error_and_leaves_nothing_behind():
    async with served() as (_, _, server):
        port = int(server.address.rpartition(":")[2])
        other = ReportServer(Source(), "127.0.0.1", port)
        with pytest.raises(OSError, match=r"address already in use|in use"):
            await other.start()
        await other.stop()

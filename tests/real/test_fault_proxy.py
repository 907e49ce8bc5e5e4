"""The proxy that tests of faults use leaves nothing behind; no binary of Kubernetes is needed for that."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import fault_proxy
import pytest
from fault_proxy import FaultProxy, Faults


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate and its key, in one file."""
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "1"]
    subprocess.run([*command, "-keyout", str(path), "-out", f"{path}.crt"], check=True, capture_output=True)
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path


@contextlib.asynccontextmanager
async def server_without_answers(certificate: Path) -> AsyncIterator[tuple[int, asyncio.Semaphore]]:
    """A TLS server that begins to answer watches and nothing else; its port, and a count of requests that came."""
    came = asyncio.Semaphore(0)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                request = await reader.readuntil(b"\r\n\r\n")
                came.release()
                if b"watch=true" in request:
                    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n")
        writer.transport.abort()

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1], came


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_no_request_outlives_the_proxy_whose_client_and_server_are_silent(
    certificate: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    monkeypatch.setattr(fault_proxy, "ANSWERED_S", 0.1)

    async def main() -> None:
        async with server_without_answers(certificate) as (port, came):
            async with FaultProxy(port, Faults()).running() as proxy, aiohttp.ClientSession() as session:
                watch = await session.get(f"{proxy.url}/api/v1/pods?watch=true")
                other = asyncio.create_task(session.request(method, f"{proxy.url}/api/v1/pods"))
                for _ in range(2):
                    await came.acquire()
                watch.close()
                other.cancel()
                await asyncio.wait([other])
            gc.collect()

    asyncio.run(main())
    assert "Task was destroyed" not in caplog.text

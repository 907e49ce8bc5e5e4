"""The HTTP transport over TLS: who the server is, who we are, and the proxies between."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import subprocess
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import cast

import pytest
from aiohttp import web
from aiohttp.connector import AddrInfoType

from muster.api.codec import Object
from muster.client.connection import Connection
from muster.client.http import HttpTransport, Sockets
from muster.client.transport import TransportError, UntrustedServer, WatchEvents

NAME = "inner.example"


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CA, a server's certificate for NAME alone, and a client's."""
    folder = tmp_path_factory.mktemp("pki")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    key = ["-newkey", "rsa:2048", "-nodes"]
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=ca", "-days", "2")
    for name, subject in (("server", f"/CN={NAME}"), ("client", "/O=people/CN=jo")):
        openssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", subject)
        (folder / "ext").write_text(f"subjectAltName=DNS:{NAME}\nbasicConstraints=CA:FALSE\n")
        openssl(
            *("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial"),
            *("-out", f"{name}.crt", "-days", "2", "-extfile", "ext"),
        )
    return folder


@contextlib.asynccontextmanager
async def tls_server(pki: Path, tokens: set[str], *, certificate: str = "server.crt") -> AsyncIterator[int]:
    """A server that says who called; 401 for tokens that it does not know. Its port."""

    async def who(request: web.Request) -> web.Response:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if tokens and token not in tokens:
            return web.json_response({"kind": "Status", "code": 401}, status=401)
        assert request.transport is not None
        certificate = request.transport.get_extra_info("peercert") or {}
        names = {key: value for (pair,) in certificate.get("subject", ()) for key, value in [pair]}
        return web.json_response({"token": token, "name": names.get("commonName", "")})

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=pki / "ca.crt")
    context.load_cert_chain(pki / certificate, pki / "server.key")
    context.verify_mode = ssl.CERT_OPTIONAL
    app = web.Application()
    app.router.add_get("/{path:.*}", who)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def ask(connection: Connection) -> Object:
    transport = HttpTransport(connection)
    try:
        body = (await transport.request("GET", "/who")).body
    finally:
        await transport.aclose()
    assert isinstance(body, dict)
    return body


def test_server_is_checked_by_the_name_that_the_kubeconfig_says(pki: Path) -> None:
    ca = (pki / "ca.crt").read_text()

    async def main() -> None:
        async with tls_server(pki, set()) as port:
            url = f"https://127.0.0.1:{port}"
            assert (await ask(Connection(url, ca=ca, tls_server_name=NAME)))["name"] == ""
            with pytest.raises(UntrustedServer, match="certificate"):
                await ask(Connection(url, ca=ca))
            with pytest.raises(UntrustedServer, match="certificate"):
                await ask(Connection(url, tls_server_name=NAME))
            assert (await ask(Connection(url, insecure=True)))["name"] == ""

    asyncio.run(main())


def test_certificates_without_key_identifiers_do(pki: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.13 and later refuse them by default; clusters have them, and Go takes them."""

    def strict(*arguments: object, **named: object) -> ssl.SSLContext:
        context = make(*arguments, **named)  # type: ignore[arg-type]  # passed through
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    make = ssl.create_default_context
    extension = pki / "bare.ext"
    extension.write_text(f"subjectAltName=DNS:{NAME}\nsubjectKeyIdentifier=none\nauthorityKeyIdentifier=none\n")
    signed = ["openssl", "x509", "-req", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial"]
    signed += ["-out", "bare.crt", "-days", "2", "-extfile", str(extension)]
    subprocess.run(signed, cwd=pki, check=True, capture_output=True)

    async def main() -> None:
        async with tls_server(pki, set(), certificate="bare.crt") as port:
            monkeypatch.setattr(ssl, "create_default_context", strict)
            ca = (pki / "ca.crt").read_text()
            connection = Connection(f"https://127.0.0.1:{port}", ca=ca, tls_server_name=NAME)
            assert (await ask(connection))["name"] == ""

    asyncio.run(main())


def test_client_shows_its_certificate(pki: Path) -> None:
    certificate, key = (pki / "client.crt").read_text(), (pki / "client.key").read_text()

    async def main() -> None:
        async with tls_server(pki, set()) as port:
            url = f"https://127.0.0.1:{port}"
            found = await ask(Connection(url, insecure=True, client_certificate=certificate, client_key=key))
            assert found["name"] == "jo"

    asyncio.run(main())


def test_refused_token_is_read_again_and_the_request_repeated(pki: Path, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("old")

    async def main() -> None:
        tokens = {"old"}
        async with tls_server(pki, tokens) as port:
            connection = Connection(f"https://127.0.0.1:{port}", insecure=True, token_file=str(tmp_path / "token"))
            transport = HttpTransport(connection)
            assert (await transport.request("GET", "/who")).status == 200
            tokens.clear()
            tokens.add("new")
            (tmp_path / "token").write_text("new")
            answer = await transport.request("GET", "/who")
            assert isinstance(answer.body, dict) and answer.body["token"] == "new"
            await transport.aclose()

    asyncio.run(main())


def test_request_goes_through_the_proxy(pki: Path) -> None:
    asked: list[str] = []

    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """CONNECT as proxies do it."""
        line = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0].decode()
        asked.append(line)
        host, port = line.split()[1].split(":")
        there_reader, there_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                target.write(data)
            target.close()

        with contextlib.suppress(ConnectionError):
            await asyncio.gather(copy(reader, there_writer), copy(there_reader, writer))

    async def main() -> None:
        proxy = await asyncio.start_server(tunnel, "127.0.0.1", 0)
        proxy_port = proxy.sockets[0].getsockname()[1]
        async with tls_server(pki, set()) as port:
            url = f"https://127.0.0.1:{port}"
            connection = Connection(url, insecure=True, token="t", proxy=f"http://127.0.0.1:{proxy_port}")
            assert (await ask(connection))["token"] == "t"
            assert asked == [f"CONNECT 127.0.0.1:{port} HTTP/1.1"]
        proxy.close()

    asyncio.run(main())


def test_server_that_is_restarted_is_reached_again(pki: Path) -> None:
    async def main() -> None:
        async with tls_server(pki, set()) as port:
            transport = HttpTransport(Connection(f"https://127.0.0.1:{port}", insecure=True))
            assert (await transport.request("GET", "/who")).status == 200
        with pytest.raises(TransportError):
            await transport.request("GET", "/who")
        await transport.aclose()

    asyncio.run(main())


def test_closing_ends_connections_whose_server_says_no_goodbye(pki: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch that is broken off closes its connection, which waits for the server's part."""
    event = b'{"type":"BOOKMARK","object":{}}\n'
    made: list[socket.socket] = []
    make = Sockets.make

    def noted(sockets: Sockets, info: AddrInfoType) -> socket.socket:
        made.append(make(sockets, info))
        return made[-1]

    monkeypatch.setattr(Sockets, "make", noted)

    async def main() -> None:
        over, left = asyncio.Event(), asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(event), event))
            writer.transport.pause_reading()  # type: ignore[attr-defined]  # of a transport that reads, too
            await over.wait()
            writer.transport.abort()
            left.set()

        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(pki / "server.crt", pki / "server.key")
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        transport = HttpTransport(Connection(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}", insecure=True))
        watch = cast(AsyncGenerator[WatchEvents], transport.watch("/watch"))  # what an iterator cannot: be closed
        async with contextlib.aclosing(watch):
            await anext(watch)
        assert [each.fileno() == -1 for each in made] == [False]
        await transport.aclose()
        assert [each.fileno() == -1 for each in made] == [True]
        over.set()
        await left.wait()
        server.close()
        await asyncio.sleep(0.01)

    asyncio.run(main())

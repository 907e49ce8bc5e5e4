"""Client certificates over real TLS."""

from __future__ import annotations

import asyncio
import random
import ssl
from pathlib import Path

import aiohttp
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from muster.apiserver.access import Access
from muster.apiserver.authentication.accounts import Accounts, SigningKey
from muster.apiserver.authentication.certificates import Authority, Certificates
from muster.apiserver.authentication.chain import Authenticator
from muster.apiserver.authorization.authorizer import authorizer
from muster.apiserver.front import Front
from muster.apiserver.http import HttpServer
from muster.apiserver.server import ApiServer
from muster.apiserver.store.memory import MemoryStore
from muster.cli.serving import make_certificate, serving_context
from muster.clock import RealClock


def signed_by(authority: str, name: str, group: str) -> str:
    """A key and its certificate by a CA (key and certificate), as PEM."""
    issuer = x509.load_pem_x509_certificate(authority.encode())
    issuer_key = load_pem_private_key(authority.encode(), None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    names = [(x509.NameOID.COMMON_NAME, name), (x509.NameOID.ORGANIZATION_NAME, group)]
    builder = x509.CertificateBuilder().subject_name(x509.Name([x509.NameAttribute(*pair) for pair in names]))
    builder = builder.issuer_name(issuer.subject).public_key(key.public_key()).serial_number(7)
    builder = builder.not_valid_before(issuer.not_valid_before_utc).not_valid_after(issuer.not_valid_after_utc)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return (private + builder.sign(issuer_key, SHA256()).public_bytes(Encoding.PEM)).decode()


def test_the_common_name_is_the_user_and_organizations_are_groups(tmp_path: Path) -> None:
    clock = RealClock()
    authority = make_certificate(clock.now())
    path = tmp_path / "client.pem"
    path.write_text(signed_by(authority, "carol", "devs"))

    async def main() -> tuple[dict[str, object], int]:
        store = MemoryStore()
        server = ApiServer(store, clock, random.Random(1))
        certificates = Certificates(Authority(authority[authority.index("-----BEGIN CERT") :]))
        authenticator = Authenticator(store, clock, accounts=Accounts(SigningKey.generate), certificates=certificates)
        context, own = serving_context(None, clock.now())
        context.verify_mode = ssl.CERT_OPTIONAL
        assert certificates.clients is not None
        context.load_verify_locations(cadata=certificates.clients.pem)
        front = Front(server, clock, Access(authenticator, authorizer(("AlwaysAllow",), store)))
        http = HttpServer(front, ssl_context=context)
        await http.start()
        url = f"{http.url}/apis/authentication.k8s.io/v1/selfsubjectreviews"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        mine = ssl.create_default_context(cadata=own)
        nobody = ssl.create_default_context(cadata=own)
        mine.load_cert_chain(path)
        async with aiohttp.ClientSession() as session:
            async with session.post(url, json=body, ssl=mine) as answer:
                found = (await answer.json())["status"]["userInfo"]
            async with session.post(url, json=body, ssl=nobody) as answer:
                code = answer.status
        await http.stop()
        return found, code

    found, code = asyncio.run(main())
    assert (found["username"], found["groups"], code) == ("carol", ["devs", "system:authenticated"], 401)

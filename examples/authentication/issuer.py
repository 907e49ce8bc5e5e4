"""A token issuer to try authentication with: OpenID discovery, a key set, and tokens for whoever you say.

    python examples/authentication/issuer.py serve DIR [PORT]      serves until Ctrl-C, writes DIR/authentication.yaml
    python examples/authentication/issuer.py token DIR jane team   prints a token for jane of the group team

DIR keeps the key and the certificate. It hands out tokens to everybody who can read DIR: for trying only.
"""

from __future__ import annotations

import contextlib
import json
import ssl
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import jwt
import yaml
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from muster.cli.serving import make_certificate

PORT = 8445
AUDIENCE = "muster"


def signing_key(folder: Path) -> rsa.RSAPrivateKey:
    """The key that signs tokens, made when it is first asked for."""
    path = folder / "signing.pem"
    if not path.exists():
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    found = load_pem_private_key(path.read_bytes(), None)
    assert isinstance(found, rsa.RSAPrivateKey)
    return found


def configuration(issuer: str, certificate: str) -> dict[str, object]:
    """The AuthenticationConfiguration that trusts this issuer."""
    return {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthenticationConfiguration",
        "jwt": [
            {
                "issuer": {"url": issuer, "audiences": [AUDIENCE], "certificateAuthority": certificate},
                "claimMappings": {
                    "username": {"claim": "sub", "prefix": ""},
                    "groups": {"expression": "claims.?groups.orValue([])"},
                },
                "userValidationRules": [
                    {"expression": "!user.username.startsWith('system:')", "message": "that name is reserved"},
                    {"expression": "user.groups.all(g, !g.startsWith('system:'))", "message": "that group is reserved"},
                ],
            }
        ],
    }


def serve(folder: Path, port: int) -> None:
    """Answer discovery and key set over HTTPS; port 0 is one that is free."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "serving.pem"
    if not path.exists():
        path.write_text(make_certificate(time.time()))
    text = path.read_text()
    certificate = text[text.index("-----BEGIN CERTIFICATE-----") :]
    (folder / "ca.pem").write_text(certificate)
    public = jwt.algorithms.RSAAlgorithm.to_jwk(signing_key(folder).public_key(), as_dict=True)
    documents: dict[str, object] = {"/keys": {"keys": [{**public, "kid": "1", "use": "sig", "alg": "RS256"}]}}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(documents.get(self.path, {})).encode()
            self.send_response(200 if self.path in documents else 404)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(body)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    issuer = f"https://127.0.0.1:{server.server_port}"
    documents["/.well-known/openid-configuration"] = {"issuer": issuer, "jwks_uri": f"{issuer}/keys"}
    (folder / "authentication.yaml").write_text(yaml.safe_dump(configuration(issuer, certificate), sort_keys=False))
    print(folder / "authentication.yaml", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()


def token(folder: Path, user: str, groups: list[str]) -> str:
    """A token that is good for an hour."""
    written = yaml.safe_load((folder / "authentication.yaml").read_text())
    issuer = written["jwt"][0]["issuer"]["url"]
    claims = {"iss": issuer, "aud": AUDIENCE, "sub": user, "groups": groups, "exp": int(time.time()) + 3600}
    return jwt.encode(claims, signing_key(folder), "RS256", {"kid": "1"})


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", name, *port] if len(port) < 2:
            serve(Path(name), int(port[0]) if port else PORT)
        case ["token", name, user, *groups]:
            print(token(Path(name), user, groups))
        case _:
            sys.exit(__doc__)

"""Which form of an answer a client accepts: JSON or YAML, whole objects, tables, metadata alone, discovery documents.

Source: apiserver `pkg/endpoints/handlers/negotiation`; what clients send is in the project's notes on kubectl.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from msgspec import Struct

from muster.apiserver.errors import failure

META_GROUP = "meta.k8s.io"
DISCOVERY_GROUP = "apidiscovery.k8s.io"


class Form(Struct, frozen=True):
    """A form of an answer. `kind` is "" for the object as it is, else `Table`, `PartialObjectMetadata` and the like."""

    media: str = "application/json"
    kind: str = ""
    group: str = ""
    version: str = ""

    @property
    def content_type(self) -> str:
        """As the answer names it: discovery clients insist on the exact text, others get the plain type."""
        if self.group == DISCOVERY_GROUP:
            return f"{self.media};g={self.group};v={self.version};as={self.kind}"
        return self.media


PLAIN = Form()
YAML = Form("application/yaml")
TABLES = tuple(Form("application/json", "Table", META_GROUP, version) for version in ("v1", "v1beta1"))
PARTIAL = tuple(
    Form("application/json", kind, META_GROUP, version)
    for kind in ("PartialObjectMetadata", "PartialObjectMetadataList")
    for version in ("v1", "v1beta1")
)
DISCOVERY = tuple(
    Form("application/json", "APIGroupDiscoveryList", DISCOVERY_GROUP, version) for version in ("v2", "v2beta1")
)
OBJECT_FORMS = (PLAIN, YAML, *TABLES, *PARTIAL)
DISCOVERY_FORMS = (PLAIN, YAML, *DISCOVERY)


@lru_cache(maxsize=256)
def choose(accept: str, offered: tuple[Form, ...] = OBJECT_FORMS) -> Form | None:
    """The first offered form that the client accepts, in its order of preference; None if there is none."""
    for wanted in _parsed(accept or "*/*"):
        for form in offered:
            if _matches(wanted, form):
                return form
    return None


def not_acceptable() -> Exception:
    """The 406 of a client that accepts nothing we have."""
    kinds = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
    message = f"only the following media types are accepted: {kinds}"
    return failure(406, "NotAcceptable", message, {})


class _Wanted(Struct, frozen=True):
    media: str
    kind: str
    group: str
    version: str


def _parsed(accept: str) -> Iterable[_Wanted]:
    """The entries of an Accept header, best first."""
    entries: list[tuple[float, _Wanted]] = []
    for entry in accept.split(","):
        media, *pairs = (part.strip() for part in entry.split(";"))
        parameters = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        try:
            quality = float(parameters.get("q", "1"))
        except ValueError:
            quality = 1.0
        wanted = _Wanted(media.lower(), parameters.get("as", ""), parameters.get("g", ""), parameters.get("v", ""))
        entries.append((quality, wanted))
    return [wanted for quality, wanted in sorted(entries, key=lambda entry: -entry[0]) if quality > 0]


def _matches(wanted: _Wanted, form: Form) -> bool:
    family, _, _ = form.media.partition("/")
    if wanted.media not in (form.media, "*/*", f"{family}/*"):
        return False
    return (wanted.kind, wanted.group, wanted.version) == (form.kind, form.group, form.version)

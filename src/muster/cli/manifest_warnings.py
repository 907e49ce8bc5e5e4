"""The warnings of `muster.Cluster` about manifests, as commands say them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from muster.cli.output import warn
from muster.cluster import ManifestWarning


@contextmanager
def manifest_warnings(*, silent: bool = False) -> Iterator[None]:
    """Print each on standard error, at the end; or none (`silent`), where they are said otherwise."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", ManifestWarning)
        try:
            yield
        finally:
            if not silent:
                warn(dict.fromkeys(str(each.message) for each in found))

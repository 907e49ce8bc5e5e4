"""Semantic versions (semver.org, 2.0.0) as Kubernetes reads and orders them in expressions."""

from __future__ import annotations

import re

from msgspec import Struct

_DIGITS = re.compile(r"[0-9]+\Z", re.ASCII)
_IDENTIFIER = re.compile(r"[0-9A-Za-z-]+\Z", re.ASCII)


class SemverError(ValueError):
    """The text is no semantic version. The messages are those of the library that Kubernetes uses. Not retryable."""


class Semver(Struct, frozen=True):
    """A version; what is built of it does not count in comparisons and is not kept."""

    major: int
    minor: int
    patch: int
    pre: tuple[str, ...] = ()

    @property
    def order(self) -> tuple[object, ...]:
        """What versions are sorted by: a release comes after its previews, numbers before words."""
        previews = tuple((0, int(each), "") if _DIGITS.match(each) else (1, 0, each) for each in self.pre)
        return self.major, self.minor, self.patch, not self.pre, previews

    def __str__(self) -> str:
        """The text without what was built."""
        return f"{self.major}.{self.minor}.{self.patch}" + (f"-{'.'.join(self.pre)}" if self.pre else "")


def parse_semver(text: str) -> Semver:
    """The version of a text. Raises SemverError."""
    if not text:
        raise SemverError("Version string empty")
    parts = text.split(".", 2)
    if len(parts) != 3:
        raise SemverError("No Major.Minor.Patch elements found")
    rest = parts[2]
    rest, _, build = rest.partition("+")
    patch, dash, pre = rest.partition("-")
    if build:
        _check_build(build)
    numbers = [_number(name, each) for name, each in zip(("Major", "Minor", "Patch"), (*parts[:2], patch), strict=True)]
    return Semver(numbers[0], numbers[1], numbers[2], tuple(map(_preview, pre.split("."))) if dash else ())


def normalised_semver(text: str) -> Semver:
    """The version of a text that may have a leading v, leading zeros, less than three numbers. Raises SemverError."""
    parts = [_without_zeros(each) for each in text.removeprefix("v").split(".", 2)]
    if len(parts) < 3 and re.search(r"[+-]", parts[-1]):
        raise SemverError("short version cannot contain PreRelease/Build meta data")
    return parse_semver(".".join([*parts, "0", "0"][:3] if len(parts) < 3 else parts))


def _without_zeros(part: str) -> str:
    if len(part) < 2:
        return part
    short = part.lstrip("0")
    return short if short and short[0].isdigit() else f"0{short}"


def _number(name: str, text: str) -> int:
    if not _DIGITS.match(text):
        raise SemverError(f'Invalid character(s) found in {name.lower()} number "{text}"')
    if len(text) > 1 and text[0] == "0":
        raise SemverError(f'{name} number must not contain leading zeroes "{text}"')
    return int(text)


def _preview(text: str) -> str:
    if not text:
        raise SemverError("Prerelease is empty")
    if not _IDENTIFIER.match(text):
        raise SemverError(f'Invalid character(s) found in prerelease "{text}"')
    if _DIGITS.match(text) and len(text) > 1 and text[0] == "0":
        raise SemverError(f'Numeric PreRelease version must not contain leading zeroes "{text}"')
    return text


def _check_build(build: str) -> None:
    for each in build.split("."):
        if not each:
            raise SemverError("Build meta data is empty")
        if not _IDENTIFIER.match(each):
            raise SemverError(f'Invalid character(s) found in build meta data "{each}"')

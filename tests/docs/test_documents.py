"""What README and docs say is true: their commands and programs run, their manifests are known, their links lead on."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.api.manifests import parse
from muster.cli.main import main
from muster.simulator.forms import decoded
from muster.simulator.notices import notices

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    ROOT / name
    for name in ("README.md", "CONTRIBUTING.md", *(str(each.relative_to(ROOT)) for each in ROOT.glob("docs/**/*.md")))
]
GUIDES = [each for each in DOCUMENTS if each.name == "README.md" or each.parent.name in ("howto", "reference")]
_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]\[]*\]\(([^)\s]+)\)")
_ALONE = ("simulate", "explain", "check", "convert")
"""Commands that need no cluster where they are given files."""


def blocks(document: Path, *languages: str) -> Iterator[str]:
    """The fenced blocks of a document in these languages."""
    for _, language, text in _BLOCK.findall(document.read_text(encoding="utf-8")):
        if language in languages:
            yield text


def commands() -> Iterator[tuple[str, str]]:
    """The `muster` commands of the guides that need no cluster, without their comments."""
    for document in GUIDES:
        for text in blocks(document, "", "console", "sh", "bash"):
            for line in text.replace("\\\n", " ").splitlines():
                words = (
                    shlex.split(line.removeprefix("$ "), comments=True)
                    if line.startswith(("muster", "$ muster"))
                    else []
                )
                if len(words) > 2 and words[1] in _ALONE and "-f" in words and "--kubeconfig" not in words:
                    yield document.name, shlex.join(words[1:])


COMMANDS = list(dict.fromkeys(commands()))


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the examples, and files for the names that guides use for those of their readers."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    explained = [(ROOT / "examples/explain" / name).read_text() for name in ("cluster.yaml", "group.yaml")]
    nodes = [
        f"apiVersion: v1\nkind: Node\nmetadata: {{name: gpu-{at}}}\n"
        "status: {allocatable: {cpu: 32, memory: 256Gi, nvidia.com/gpu: 8, pods: 110}}\n"
        for at in range(4)
    ]
    files = {
        "cluster.yaml": "---\n".join(explained),
        "nodes.yaml": "---\n".join(nodes),
        "jobs.yaml": (ROOT / "examples/gang-job.yaml").read_text(),
        "more.yaml": (ROOT / "examples/gang-pods.yaml").read_text(),
        "next-job.yaml": (ROOT / "examples/gang-job.yaml").read_text(),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize(("document", "command"), COMMANDS, ids=[f"{name}: {text}" for name, text in COMMANDS])
def test_commands_do_what_they_are_shown_for(document: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(shlex.split(command)) == 0
    captured = capsys.readouterr()
    assert "Warning" not in captured.err
    assert captured.out or "--write" in command or "--report" in command


def test_there_are_commands_to_run() -> None:
    assert len(COMMANDS) >= 15
    assert {name for name, _ in COMMANDS} >= {"README.md", "compare.md", "gangs.md", "what-if.md", "why-it-waits.md"}


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize(
    "document",
    [each for each in GUIDES if any(blocks(each, "python"))],
    ids=lambda each: str(each.relative_to(ROOT)),
)
def test_programs_run(document: Path) -> None:
    names: dict[str, object] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        for text in blocks(document, "python"):
            exec(compile(text, document.name, "exec"), names)


@pytest.mark.parametrize(
    "document", [each for each in DOCUMENTS if any(blocks(each, "yaml"))], ids=lambda each: str(each.relative_to(ROOT))
)
def test_manifests_have_only_fields_that_there_are(document: Path) -> None:
    for text in blocks(document, "yaml"):
        if "apiVersion:" not in text or any(word in text for word in ("…", "...", *_OTHERS)):
            continue
        for manifest in parse(text, document.name):
            known, unknown = decoded(manifest)
            assert [each.text for each in notices(known, unknown)] == []


_OTHERS = ("kubescheduler.config.k8s.io", "rbac.authorization.k8s.io", "muster-k8s.dev/v", "kueue.x-k8s.io/v")
"""Groups of objects that are no manifests of the embedded cluster."""


def slugs(document: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    text = _BLOCK.sub("", document.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ +(.+?)\s*$", text, flags=re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)).lower() for title in titles)
    return {title.replace(" ", "-") for title in plain}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda each: str(each.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    wrong = []
    for link in _LINK.findall(_BLOCK.sub("", document.read_text(encoding="utf-8"))):
        if link.startswith(("http:", "https:", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in slugs(target)):
            wrong.append(link)
    assert wrong == []


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl")
def test_the_cluster_of_the_readme_is_there_for_kubectl(workplace: Path) -> None:
    shown = "\n".join(blocks(ROOT / "README.md", ""))
    (start,) = re.findall(r"^muster (up .+)$", shown, flags=re.MULTILINE)
    asked = re.findall(r"^kubectl .+$", shown, flags=re.MULTILINE)
    assert len(asked) == 2
    process = subprocess.Popen(
        [sys.executable, "-c", "from muster.cli.main import run; run()", *shlex.split(start)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        config = process.stdout.readline().strip()
        assert config == str(workplace / "muster.kubeconfig")
        said = [
            subprocess.run(
                [*shlex.split(command), "--kubeconfig", config], check=True, capture_output=True, text=True, timeout=120
            ).stdout
            for command in asked
        ]
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert "job.batch/train created" in said[0]
    assert process.returncode == 0

"""Commands as processes: interrupted, without a reader, without room, with files that are not what they should be."""

from __future__ import annotations

import errno
import itertools
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest
import yaml

from muster.api.codec import dumps
from muster.api.manifests import parse
from muster.cli.main import main
from muster.client.kubeconfig import kubeconfig, write_kubeconfig
from muster.nodes.spec import NodeSpec
from muster.simulator.run import simulate
from muster.testing import make_pod

EXAMPLES = Path(__file__).parents[2] / "examples"
MUSTER = (sys.executable, "-c", "from muster.cli.main import run; run()")
GANG = ("simulate", "-f", str(EXAMPLES / "gang-pods.yaml"), "--nodes", "1")
EXPLAIN = ("explain", "-f", str(EXAMPLES / "explain" / "cluster.yaml"))
CHECK = ("check", "-f", str(EXAMPLES / "check" / "jobs.yaml"))
CONVERT = ("convert", "-f", str(EXAMPLES / "convert" / "coscheduling.yaml"), "--to", "v1beta1")
WORKING_S = 300


def run(
    *arguments: str,
    stdin: str | bytes = b"",
    stdout: int = subprocess.PIPE,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*MUSTER, *arguments],
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        env=None if environment is None else {**environment},
        timeout=WORKING_S,
        check=False,
    )


# -- Ctrl-C ------------------------------------------------------------------------------------------------------------


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def interrupted_after(worked_s: float, arguments: Sequence[str]) -> tuple[int, str]:
    """The exit code and standard error of a command that gets Ctrl-C when it has worked for so long."""
    process = subprocess.Popen([*MUSTER, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        while cpu_s(process.pid) < worked_s and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        return process.wait(WORKING_S), process.communicate()[1]
    finally:
        process.kill()


@pytest.fixture(scope="module")
def many_pods(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Enough to do for any command."""
    path = tmp_path_factory.mktemp("many") / "pods.json"
    pods = [make_pod(f"p{at}", cpu=str(1 + at % 7)) for at in range(6000)]
    path.write_bytes(dumps({"apiVersion": "v1", "kind": "List", "items": pods}))
    return str(path)


@pytest.mark.parametrize("worked_s", [0.6, 1.4, 2.0])
@pytest.mark.parametrize("command", ["simulate", "explain", "check"])
def test_ctrl_c_ends_a_command_in_one_line(command: str, worked_s: float, many_pods: str) -> None:
    nodes = () if command == "explain" else ("--nodes", "100")
    assert interrupted_after(worked_s, [command, "-f", many_pods, *nodes]) == (130, "muster: interrupted\n")


@pytest.mark.parametrize("arguments", [["bench"], ["bench", "throughput"]], ids=" ".join)
def test_ctrl_c_ends_a_measurement(arguments: list[str]) -> None:
    assert interrupted_after(0.9, arguments) == (130, "muster: interrupted\n")


@pytest.mark.parametrize("command", [("simulate",), ("explain",), ("check",), ("convert", "--to", "v1beta1")])
def test_ctrl_c_ends_waiting_for_input(command: tuple[str, ...], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    process = subprocess.Popen([*MUSTER, *command, "-f", str(tmp_path / "pipe")], stderr=subprocess.PIPE, text=True)
    with (tmp_path / "pipe").open("w"):  # opens when the command does, which then waits for text
        process.send_signal(signal.SIGINT)
        assert (process.wait(WORKING_S), process.communicate()[1]) == (130, "muster: interrupted\n")


@pytest.fixture
def default_interrupts() -> Iterator[None]:
    """Ctrl-C as Python treats it where nobody else has said so."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt_at(wanted: int, moments: Iterator[int], world: object) -> None:
    if next(moments) == wanted:
        signal.raise_signal(signal.SIGINT)


@pytest.mark.usefixtures("default_interrupts")
def test_ctrl_c_during_a_simulation_tears_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    manifests = parse(yaml.safe_dump_all(make_pod(f"p{at}", cpu="1") for at in range(5)))
    for wanted in (0, 3, 8):
        moments = itertools.count()
        with pytest.raises(KeyboardInterrupt):
            simulate(manifests, nodes=[NodeSpec(2)], on_progress=partial(interrupt_at, wanted, moments))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert capsys.readouterr().err == ""


# -- standard output ---------------------------------------------------------------------------------------------------

OUTPUTS = [
    ("--help",),
    ("--version",),
    ("simulate", "--help"),
    GANG,
    (*GANG, "-o", "json"),
    EXPLAIN,
    CHECK,
    CONVERT,
    ("demo",),
]


@pytest.mark.parametrize("arguments", OUTPUTS, ids=lambda arguments: " ".join(arguments[::3])[:30])
def test_a_reader_that_goes_away_is_no_error(arguments: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    found = run(*arguments, stdout=writing)
    os.close(writing)
    assert found.returncode == 0
    assert b"muster:" not in found.stderr
    assert b"Traceback" not in found.stderr
    assert b"Exception ignored" not in found.stderr


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="there is no /dev/full")
@pytest.mark.parametrize("arguments", OUTPUTS, ids=lambda arguments: " ".join(arguments[::3])[:30])
def test_an_output_without_room_is_said_in_one_line(arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        found = run(*arguments, stdout=full.fileno())
    assert found.returncode == 1
    assert found.stderr.decode().endswith("muster: standard output cannot be written: No space left on device\n")
    assert b"Traceback" not in found.stderr


def test_a_command_without_standard_streams_does_its_work(tmp_path: Path) -> None:
    out = tmp_path / "out.txt"
    shell = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *MUSTER, *GANG, "--write", str(out)]
    assert subprocess.run(shell, check=False, timeout=WORKING_S).returncode == 0
    assert "1 Running" in out.read_text()
    shell[-2:] = []
    assert subprocess.run(shell, check=False, timeout=WORKING_S).returncode == 0


@pytest.mark.parametrize("arguments", [GANG, EXPLAIN, CHECK, ("demo",), ("simulate", "--help")])
def test_what_a_terminal_cannot_show_it_shows_otherwise(arguments: tuple[str, ...]) -> None:
    plain = {"PATH": os.environ["PATH"], "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    found = run(*arguments, environment={**plain, "PYTHONIOENCODING": "ascii"})
    assert (found.returncode, found.stderr) == (0, b"")
    assert found.stdout.isascii()


def test_tables_off_a_terminal_have_no_blanks_at_their_ends(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (GANG, EXPLAIN, CHECK):
        assert main(arguments) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines == [line.rstrip() for line in lines]


# -- files to write ----------------------------------------------------------------------------------------------------


def unwritable(tmp_path: Path) -> list[tuple[Path, int]]:
    (tmp_path / "file").write_text("")
    (tmp_path / "directory").mkdir()
    return [
        (tmp_path / "none" / "x", errno.ENOENT),
        (tmp_path / "file" / "x", errno.ENOTDIR),
        (tmp_path / "directory", errno.EISDIR),
    ]


@pytest.mark.parametrize(
    "arguments",
    [(*GANG, "--write"), (*GANG, "--report"), (*EXPLAIN, "--write"), (*CHECK, "--write"), (*CONVERT, "--write")],
    ids=["simulate", "report", "explain", "check", "convert"],
)
def test_files_that_cannot_be_written_are_refused_before_any_work(
    arguments: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path, why in unwritable(tmp_path):
        assert main([*arguments, str(path)]) == 2
        captured = capsys.readouterr()
        assert captured.err == f"muster: {path}: cannot be written: {os.strerror(why)}\n"
        assert captured.out == ""


@pytest.mark.skipif(os.geteuid() == 0, reason="everything can be written by root")
def test_a_directory_that_may_not_be_written_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tmp_path.chmod(0o500)
    assert main([*GANG, "--write", str(tmp_path / "x")]) == 2
    assert "cannot be written: Permission denied" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="there is no /dev/full")
@pytest.mark.parametrize("option", ["--write", "--report"])
def test_a_disk_without_room_is_said(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*GANG, option, "/dev/full"]) == 2
    assert capsys.readouterr().err == "muster: /dev/full: cannot be written: No space left on device\n"


def test_a_kubeconfig_goes_into_a_pipe_or_behind_a_link_and_both_stay(tmp_path: Path) -> None:
    pipe, link, real = tmp_path / "pipe", tmp_path / "link", tmp_path / "real"
    os.mkfifo(pipe)
    said: list[str] = []
    reader = threading.Thread(target=lambda: said.append(pipe.read_text()))
    reader.start()
    write_kubeconfig(pipe, kubeconfig("http://127.0.0.1:1"))
    reader.join()
    assert pipe.is_fifo()
    assert "http://127.0.0.1:1" in said[0]
    real.write_text("old")
    link.symlink_to(real)
    write_kubeconfig(link, kubeconfig("http://127.0.0.1:2"))
    assert link.is_symlink()
    assert "http://127.0.0.1:2" in real.read_text()


def test_a_data_directory_without_room_ends_the_cluster_and_keeps_what_it_had(tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, 1_500_000))

    arguments = ["up", "--nodes", "2", "--data", str(tmp_path / "data")]
    process = subprocess.Popen(
        [*MUSTER, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=limit
    )
    assert process.stdout is not None
    config = yaml.safe_load(Path(process.stdout.readline().strip()).read_text())
    url = config["clusters"][0]["cluster"]["server"] + "/api/v1/namespaces/default/configmaps"
    acknowledged = []
    try:
        for at in range(1000):
            body = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": f"c{at}"},
                "data": {"a": "x" * 50_000},
            }
            request = urllib.request.Request(url, dumps(body), {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=30):
                acknowledged.append(f"c{at}")
    except (urllib.error.HTTPError, OSError):
        pass
    code, (_, said) = process.wait(WORKING_S), process.communicate()
    assert code == 1
    assert said.splitlines()[-1].startswith(f"muster: --data {tmp_path / 'data'}: cannot be written: ")
    assert "Traceback" not in said
    assert acknowledged

    again = subprocess.Popen([*MUSTER, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert again.stdout is not None
    try:
        config = yaml.safe_load(Path(again.stdout.readline().strip()).read_text())
        url = config["clusters"][0]["cluster"]["server"] + "/api/v1/namespaces/default/configmaps"
        with urllib.request.urlopen(url, timeout=30) as answer:
            kept = {each["metadata"]["name"] for each in yaml.safe_load(answer.read())["items"]}
    finally:
        again.send_signal(signal.SIGINT)
        again.communicate()
    assert set(acknowledged) <= kept


# -- files to read -----------------------------------------------------------------------------------------------------

READERS = [("simulate",), ("explain",), ("check",), ("convert", "--to", "v1beta1")]


@pytest.mark.parametrize("command", READERS, ids=lambda command: command[0])
@pytest.mark.parametrize(
    ("data", "want"),
    [
        (b"", "there is no object in it"),
        (b"# only a comment\n", "there is no object in it"),
        (b"---\n---\n", "there is no object in it"),
        (b"null", "there is no object in it"),
        (b"[]", "there is no object in it"),
        (b"\0\0\0", "not YAML: unacceptable character #x0000: control characters are not allowed"),
        ("kind: Pod\nname: ä".encode("latin-1"), "2: is not UTF-8 text"),
        ("kind: Pod".encode("utf-16"), "1: is not UTF-8 text"),
        (b"just words", "1: this is not an object with apiVersion, kind and metadata"),
        (b"kind: Pod\n\tx: 1", "2: not YAML: found a tab character that violates indentation"),
        (b"{", "not YAML: did not find expected node content"),
    ],
)
def test_files_that_are_no_manifests_are_refused_in_one_line(
    command: tuple[str, ...], data: bytes, want: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.yaml"
    file.write_bytes(data)
    assert main([*command, "-f", str(file)]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"muster: {file}:")
    assert err.endswith(f"{want}\n")
    assert err.count("\n") == 1


@pytest.mark.parametrize("command", READERS, ids=lambda command: command[0])
@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("none.yaml", "none.yaml: cannot be read: No such file or directory"),
        ("", "-f: the name is empty (a variable that is not set?)"),
        ("https://example.com/x.yaml", "URLs are not read: download it, or pipe it into -f -"),
    ],
)
def test_names_that_are_no_files_are_refused_in_one_line(
    command: tuple[str, ...], name: str, want: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "-f", name]) == 2
    err = capsys.readouterr().err
    assert want in err
    assert err.count("\n") == 1


def test_json_that_breaks_off_is_called_that(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "x.json"
    file.write_text('{"kind": "Pod",\n"metadata": {')
    assert main(["simulate", "-f", str(file)]) == 2
    assert capsys.readouterr().err == f"muster: {file}:2: not JSON: unexpected end of data\n"
    file.write_text("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}")
    assert main(["simulate", "-f", str(file)]) == 0


def test_marks_and_line_ends_of_windows_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (EXAMPLES / "gang-pods.yaml").read_text().replace("\n", "\r\n")
    (tmp_path / "x.yaml").write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert main(["simulate", "-f", str(tmp_path / "x.yaml"), "--nodes", "1"]) == 0
    assert "1 Running" in capsys.readouterr().out


@pytest.mark.parametrize("command", READERS, ids=lambda command: command[0])
def test_standard_input_is_a_file_like_any_other(command: tuple[str, ...]) -> None:
    text = (EXAMPLES / "gang-pods.yaml").read_bytes()
    found = run(*command, "-f", "-", stdin=text)
    assert (found.returncode, found.stderr) == (0, b"")
    assert b"trio" in found.stdout
    empty = run(*command, "-f", "-")
    assert (empty.returncode, empty.stderr) == (2, b"muster: standard input: there is no object in it\n")
    twice = run(*command, "-f", "-", "-f", "-", stdin=text)
    assert (twice.returncode, twice.stderr) == (2, b"muster: -f -: standard input can be read only once\n")


def test_names_of_any_bytes_are_read_and_named(tmp_path: Path) -> None:
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/n\xff.yaml")
    Path(odd).write_bytes((EXAMPLES / "gang-pods.yaml").read_bytes())
    found = run("check", "-f", odd, "-o", "json")
    assert (found.returncode, found.stderr) == (0, b"")
    assert "n\ufffd.yaml" in found.stdout.decode()
    Path(odd).write_bytes(b"kind: x")
    assert b"apiVersion is missing" in run("simulate", "-f", odd).stderr


def test_commands_need_no_home(tmp_path: Path) -> None:
    bare = {"PATH": os.environ["PATH"]}
    assert run(*GANG, environment=bare).returncode == 0
    found = run("explain", "podgroup/x", environment={**bare, "HOME": str(tmp_path)})
    assert found.returncode == 2
    assert found.stderr.decode() == (
        f"muster: {tmp_path}/.kube/config: cannot be read: No such file or directory "
        "(--kubeconfig says where the cluster's configuration is)\n"
    )

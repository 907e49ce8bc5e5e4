"""`muster scheduler`: what it refuses before it asks a server, and how options and configuration agree on the lease."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from muster.cli.errors import BadInput
from muster.cli.logs import JsonFormatter
from muster.cli.main import main
from muster.cli.scheduler import LeaderElection, lease_terms, provisioning_terms
from muster.cli.scheduler_words import deed_line
from muster.client.kubeconfig import kubeconfig, write_kubeconfig
from muster.scheduler.election import LeaseTerms
from muster.scheduler.fence import Deed
from muster.scheduler.provisioning.objects import ProvisioningTerms


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A kubeconfig of a server that nobody asks."""
    path = tmp_path / "kubeconfig"
    write_kubeconfig(path, kubeconfig("https://127.0.0.1:1"))
    return path


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (["--kubeconfig", "/none"], "/none: cannot be read: No such file or directory"),
        (["--context", "other"], "contexts: there is no context named 'other'"),
        (["--port", "70000"], "--port 70000: must be a number from 0 to 65535"),
        (["--leader-elect-lease-duration", "soon"], "--leader-elect-lease-duration: 'soon' is not a duration"),
        (["--leader-elect-lease-duration", "5s"], "--leader-elect-lease-duration must be longer than"),
        (["--leader-elect-retry-period", "9s"], "--leader-elect-renew-deadline must be longer than 1.2 times"),
        (["--repair-after", "later"], "--repair-after: 'later' is not a duration"),
        (["--log-level", "LOUD"], "--log-level LOUD: must be DEBUG, INFO, WARNING or ERROR"),
        (["--provisioning-requests", "Best"], "--provisioning-requests: 'Best' is not the name of a class, such as"),
        (["--provisioning-parameter", "a=b"], "--provisioning-parameter: only with --provisioning-requests"),
        (
            ["--provisioning-requests", "check-capacity", "--provisioning-parameter", "a"],
            "--provisioning-parameter a: must be KEY=VALUE",
        ),
        (["--create-workloads", "--no-grouping"], "--create-workloads: not with --no-grouping"),
        (["--config", "/none"], "--config /none: cannot be read"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    config: Path, arguments: list[str], want: str, capsys: pytest.CaptureFixture[str]
) -> None:
    named = [] if "--kubeconfig" in arguments else ["--kubeconfig", str(config)]
    assert main(["scheduler", *named, *arguments]) == 2
    err = capsys.readouterr().err
    assert want in err and err.startswith("muster: ") and err.count("\n") == 1


def test_configuration_that_is_wrong_is_refused(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "leaderElection: {leaderElect: 5}\n"
    )
    assert main(["scheduler", "--kubeconfig", str(config), "--config", str(path)]) == 2
    assert "leaderElection.leaderElect" in capsys.readouterr().err


def test_options_come_before_the_configuration_and_that_before_the_defaults() -> None:
    assert lease_terms(LeaderElection(), {}) == LeaseTerms()
    said = {"resourceName": "mine", "leaseDuration": "30s", "renewDeadline": "20s"}
    options = LeaderElection(leader_elect_renew_deadline="25s", leader_elect_resource_namespace="team")
    assert lease_terms(options, said) == LeaseTerms("mine", "team", 30.0, 25.0, 2.0)


def test_election_can_be_left_out_by_either() -> None:
    assert lease_terms(LeaderElection(leader_elect=False), {}) is None
    assert lease_terms(LeaderElection(), {"leaderElect": False}) is None
    assert lease_terms(LeaderElection(leader_elect=True), {"leaderElect": False}) is not None


def test_classes_and_parameters_of_provisioning_requests_are_taken_apart() -> None:
    assert provisioning_terms("", ()) is None
    want = ProvisioningTerms("check-capacity.autoscaling.x-k8s.io", (("a", "1"), ("b", "x=y")))
    assert provisioning_terms("check-capacity", ("b=x=y", "a=1")) == want


def test_lease_shorter_than_its_deadline_is_refused() -> None:
    with pytest.raises(BadInput, match="longer than --leader-elect-renew-deadline"):
        lease_terms(LeaderElection(), {"leaseDuration": "9s"})


def test_dry_run_says_one_line_for_people_and_one_object_for_programs() -> None:
    deed = Deed("bind", "pods team/a", {"node": "n1"})
    assert deed_line(deed, "table") == "would bind      pods team/a to n1"
    assert json.loads(deed_line(deed, "json")) == {"action": "bind", "object": "pods team/a", "node": "n1"}
    assert deed_line(Deed("event", "Pod team/a", {"reason": "Scheduled"}), "table") == ""


def test_json_log_has_the_fields_that_came_along() -> None:
    record = logging.LogRecord("muster.x", logging.INFO, "", 0, "group undone", (), None)
    record.pods = 3
    line = json.loads(JsonFormatter().format(record))
    assert (line["level"], line["logger"], line["message"], line["pods"]) == ("INFO", "muster.x", "group undone", 3)

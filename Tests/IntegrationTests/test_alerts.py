"""The metrics and the alert rules, judged by Prometheus' own tool."""

import re
import subprocess

import yaml

from mayfly import Client
from processes import REPOSITORY

RULES = REPOSITORY / "packaging/prometheus/mayfly.rules.yml"


def promtool(*words, given=None):
    done = subprocess.run([REPOSITORY / ".build/promtool", *map(str, words)], input=given, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and not done.stderr, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def rules():
    [group] = yaml.safe_load(RULES.read_text())["groups"]
    return group["rules"]


def served(world):
    Client(world.broker.port).room()
    return Client(world.broker.operator_port).send("GET", "/metrics").body.decode()


def test_promtool_accepts_the_metrics(world):
    promtool("check", "metrics", given=served(world))


def test_promtool_accepts_the_rules():
    assert f"{len(rules())} rules found" in promtool("check", "rules", RULES)


def test_every_alert_fires_on_its_condition_only():
    tests = REPOSITORY / "Tests/IntegrationTests/alert_rules.yml"
    promtool("test", "rules", tests)
    names = {rule["alert"] for rule in rules()}
    told = yaml.safe_load(tests.read_text())["tests"]
    assert {one["alertname"] for one in told[0]["alert_rule_test"]} == names
    assert {re.search(r'"(\w+)"', sample["labels"])[1] for sample in told[1]["promql_expr_test"][0]["exp_samples"]} == names


def test_every_metric_of_the_rules_is_served(world):
    names = set(re.findall(r"^(mayfly_\w+)[ {]", served(world), re.M))
    for rule in rules():
        used = set(re.findall(r"\bmayfly_\w+", rule["expr"])) or {"up"}
        assert used <= names | {"up"}, rule["alert"]

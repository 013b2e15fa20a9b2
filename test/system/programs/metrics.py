#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""metrics.py PROMETHEUS_URL DASHBOARD RULES: every query of the dashboard, and the value that every
alert rule compares, has data in that Prometheus; the rules are healthy. Waits for
data as long as a few scrapes take."""

import json
import re
import sys
import time
import urllib.parse
import urllib.request

COMPARISON = re.compile(r"^(.*)\s(?:>|<)\s\S+$", re.DOTALL)
PATIENCE_S = 40


def ask(url, path, **parameters):
    query = urllib.parse.urlencode(parameters)
    with urllib.request.urlopen(f"{url}/api/v1/{path}?{query}", timeout=10) as reply:
        answer = json.load(reply)
    assert answer["status"] == "success", answer
    return answer["data"]


def dashboard_queries(path):
    with open(path, encoding="utf-8") as file:
        dashboard = json.load(file)
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            expr = target["expr"].replace("$__rate_interval", "8s").replace("$instance", ".*")
            assert "$" not in expr, f"{panel['title']}: an unknown variable in {expr}"
            yield panel["title"], expr


def rules_of(url):
    return [rule for group in ask(url, "rules")["groups"] for rule in group["rules"]]


def main():
    url, dashboard = sys.argv[1:]
    queries = list(dashboard_queries(dashboard))
    rules = rules_of(url)
    for rule in rules:
        # The rules look back over minutes: what is compared is wanted here, over seconds.
        value = COMPARISON.match(rule["query"])
        assert value, f"{rule['name']} compares nothing: {rule['query']}"
        expr = re.sub(r"\[5m\]", "[8s]", value.group(1))
        queries.append((rule["name"], expr))
    deadline = time.monotonic() + PATIENCE_S
    missing = queries
    while missing and time.monotonic() < deadline:
        missing = [(name, expr) for name, expr in missing
                   if not ask(url, "query", query=expr)["result"]]
        time.sleep(1)
    for name, expr in missing:
        print(f"{name}: no data for {expr}")
    while any(rule["health"] == "unknown" for rule in rules) and time.monotonic() < deadline:
        time.sleep(1)
        rules = rules_of(url)
    sick = [rule for rule in rules if rule["health"] != "ok"]
    for rule in sick:
        print(f"{rule['name']}: {rule['health']}: {rule.get('lastError')}")
    print(f"{len(queries)} queries, {len(missing)} without data; "
          f"{len(rules)} rules, {len(sick)} sick")
    return 1 if missing or sick or not rules else 0


if __name__ == "__main__":
    sys.exit(main())

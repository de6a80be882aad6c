#!/usr/bin/env bash
# hypothesis 6.170.15: a rule or invariant that a subclass overrides without decorating it again is not run any more.
#
# Does:    runs a state machine with a rule step, a rule other and an invariant check, and a subclass that defines step
#          and check anew as plain methods.
# Expected: the subclass runs its own step and check in the place of its parent's, or an error says that they are not
#          decorated.
# Seen:    the parent runs all three; the subclass runs other alone and passes: neither its own methods nor its parent's
#          are called.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check hypothesis==6.170.15
cd "$dir"
"$dir/venv/bin/python" - <<'PYTHON'
import sys

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

called = set()


class Parent(RuleBasedStateMachine):
    @rule()
    def step(self):
        called.add("parent's step")

    @rule()
    def other(self):
        called.add("other")

    @invariant()
    def check(self):
        called.add("parent's check")


class Child(Parent):
    def step(self):
        called.add("child's step")

    def check(self):
        called.add("child's check")


seen = []
for machine in (Parent, Child):
    called.clear()
    run_state_machine_as_test(machine, settings=settings(max_examples=50, database=None, derandomize=True))
    seen.append(sorted(called))
print(f"parent ran {seen[0]}, child ran {seen[1]}")
sys.exit(seen != [["other", "parent's check", "parent's step"], ["other"]])
PYTHON

#!/usr/bin/env bash
# pulsar-client 3.13.0 (Python): a Record that inherits from another one loses its parent's fields.
#
# Does:    class Base(Record) has a, class Child(Base) has b; looks at Child's schema and encodes Child(a=1, b=2).
# Expected: both fields.
# Seen:    the schema and the JSON have b only; a=1 is dropped without a word, and child.a is the Integer() object
#          of the class.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check pulsar-client==3.13.0
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import json
import sys

from pulsar.schema import Integer, JsonSchema, Record


class Base(Record):
    a = Integer()


class Child(Base):
    b = Integer()


child = Child(a=1, b=2)
seen = [field["name"] for field in Child.schema()["fields"]], json.loads(JsonSchema(Child).encode(child))
print(f"schema {seen[0]}, encoded {seen[1]}, child.a is {type(child.a).__name__}")
sys.exit(seen != (["b"], {"b": 2}) or not isinstance(child.a, Integer))
PYTHON

"""Answers a broker's admin interface as told: ``admin_interface.py ANSWERS.json ASKED``.

The answers to each path come in turn, the last one again and again; what was asked is appended to ASKED.
"""

from __future__ import annotations

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

answers = json.loads(Path(sys.argv[1]).read_text())
conf = Path(os.environ["PULSAR_STANDALONE_CONF"]).read_text().splitlines()
(port,) = (line.partition("=")[2] for line in conf if line.startswith("webServicePort="))


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        with Path(sys.argv[2]).open("a") as asked:
            print(self.path, file=asked)
        coming = answers[self.path]
        code, body = coming.pop(0) if len(coming) > 1 else coming[0]
        self.send_response(code)
        self.end_headers()
        self.wfile.write(body.encode())


HTTPServer(("127.0.0.1", int(port)), Handler).serve_forever()

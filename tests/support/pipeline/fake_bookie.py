"""A bookie that answers from memory and can be told to misbehave, as no real one can be made to."""

from __future__ import annotations

import socketserver
import struct
from collections.abc import Callable

from tests.support.pipeline.entries import batch_response, stored
from tests.support.pipeline.loopback import LoopbackServer

Answer = Callable[[int, int, int], bytes]
_NO_ENTRY = 2


class FakeBookie(LoopbackServer):
    """Serves entries ``{(ledger_id, entry_id): payload}`` on loopback; a context manager.

    spoil: changes the frame (without its size) that is about to be sent. cut_after: closes each connection
    after so many answers. batch_max: entries of one batch at most. digest: of what it keeps.
    """

    def __init__(
        self,
        entries: dict[tuple[int, int], bytes],
        *,
        spoil: Callable[[bytes], bytes] = bytes,
        cut_after: int | None = None,
        batch_max: int = 1000,
        digest: str = "CRC32C",
    ) -> None:
        self.entries = entries
        self.answered = 0
        self._spoil, self._cut_after, self._batch_max = spoil, cut_after, batch_max
        self._digest = digest
        super().__init__()

    def _serve(self, handler: socketserver.StreamRequestHandler) -> None:
        done = 0
        while (head := handler.rfile.read(4)) and (self._cut_after is None or done < self._cut_after):
            request = handler.rfile.read(struct.unpack(">I", head)[0])
            frame = self._spoil(self._answer(request))
            handler.wfile.write(struct.pack(">I", len(frame)) + frame)
            done += 1
            self.answered += 1

    def _answer(self, request: bytes) -> bytes:
        header, ledger_id, entry_id = struct.unpack_from(">Iqq", request)
        if header >> 16 & 0xFF == 2:
            payload = self.entries.get((ledger_id, entry_id))
            status = _NO_ENTRY if payload is None else 0
            body = b"" if payload is None else stored(ledger_id, entry_id, payload, self._digest)
            return struct.pack(">IiqQ", 2 << 24 | 2 << 16, status, ledger_id, entry_id) + body
        request_id, count, _ = struct.unpack_from(">qiq", request, 20)
        found = []
        for at in range(entry_id, entry_id + min(count, self._batch_max)):
            if (ledger_id, at) not in self.entries:
                break
            found.append(stored(ledger_id, at, self.entries[ledger_id, at], self._digest))
        return batch_response(ledger_id, entry_id, request_id, found, 0 if found else _NO_ENTRY)

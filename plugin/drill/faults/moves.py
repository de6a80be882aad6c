"""A topic that changes its owner, and a cursor reset meanwhile."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from tidegate.plugin.drill.fault import FaultError, Scene
from tidegate.plugin.drill.ledger import Forgets
from tidegate.plugin.errors import UserError

_REWIND_TIMEOUT_S = 20.0
_AGAIN_S = 0.05


@dataclass(frozen=True)
class Move:
    """The topic's bundle is moved to another broker."""

    what: str = "the bundle moves to the other broker"
    forgets: Forgets = Forgets.ORDERLY
    rewinds: bool = False

    def do(self, scene: Scene) -> str:
        """Move it."""
        return scene.stand.move(scene.topic)

    def undo(self, scene: Scene) -> None:
        """Nothing: it stays where it is."""


@dataclass(frozen=True)
class SeekWhileMoving:
    """The cursor is reset to the beginning while the bundle moves."""

    what: str = "the cursor is set back to the beginning while the bundle moves"
    forgets: Forgets = Forgets.ORDERLY
    rewinds: bool = True

    def do(self, scene: Scene) -> str:
        """Ask for both at once; the reset is repeated until a broker accepts it."""
        moved: list[str] = []
        failed: list[UserError] = []

        def move() -> None:
            try:
                moved.append(scene.stand.move(scene.topic))
            except UserError as error:
                failed.append(error)

        mover = threading.Thread(target=move, daemon=True)
        mover.start()
        deadline_s = time.monotonic() + _REWIND_TIMEOUT_S
        while True:
            try:
                # Before each attempt: messages that the accepting broker sends back count from here.
                scene.event("rewinding")
                scene.stand.rewind(scene.topic, scene.subscription)
                break
            except FaultError:
                if time.monotonic() > deadline_s:
                    raise
                scene.pause(_AGAIN_S)
        mover.join()
        if failed:
            raise failed[0]
        return f"{moved[0]}, and the cursor was set back"

    def undo(self, scene: Scene) -> None:
        """Nothing: messages behind the reset cursor are delivered again."""

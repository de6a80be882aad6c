"""The hook that does faults on a cluster of one's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.own_stands import own
from tidegate.plugin.drill.fault import FaultError, State
from tidegate.plugin.drill.stands.hook import HookPart
from tidegate.plugin.shared.stop import InterruptedRunError, Stop


@pytest.mark.parametrize(
    ("hook", "told"),
    [
        ("false", "ended with 1"),
        ("/nothing/there", "could not be run"),
        ("sh -c 'echo not root >&2; exit 7'", "not root"),
    ],
)
def test_a_hook_that_fails_is_told(tmp_path: Path, hook: str, told: str) -> None:
    part = own(tmp_path, on_kill=hook).part("broker")
    with pytest.raises(FaultError, match=told):
        part.kill()
    assert part.state() is State.RUNNING


def test_a_hook_is_told_what_to_do_and_believed_when_it_is_seen(tmp_path: Path) -> None:
    """Nobody answers on that admin URL: the broker is away, and cannot be seen to come back."""
    said = tmp_path / "said"
    hook = f"sh -c 'echo \"$@\" >> {said}' hook"
    part = own(tmp_path, on_kill=hook).part("broker")
    assert isinstance(part, HookPart)
    part.kill()
    assert part.state() is State.GONE
    assert said.read_text() == "kill broker\n"


class _Seen:
    """A cluster of which the broker is seen to go and to come."""

    def trace(self, name: str) -> object:
        return None

    def away(self, name: str, before: object) -> bool:
        return True

    def there(self, name: str) -> bool:
        return True


def test_ctrl_c_amid_a_hook_leaves_it_to_its_end_and_brings_back_what_it_took(tmp_path: Path) -> None:
    said, stop = tmp_path / "said", Stop("the drills")
    hook = f"sh -c 'read line < {tmp_path / 'go'}; echo \"$@\" >> {said}' hook"
    os.mkfifo(tmp_path / "go")

    def pause(seconds: float) -> None:
        """Somebody asks for the end while the hook still waits for its line."""
        if not said.exists():
            (tmp_path / "go").write_text("go\n")
        stop.request()
        stop.pause(seconds)

    part = HookPart("broker", _Seen(), hook, tmp_path / "hook.log", pause)
    with pytest.raises(InterruptedRunError):
        part.kill()
    assert said.read_text() == "kill broker\n"
    assert part.state() is State.GONE
    said.unlink()
    with pytest.raises(InterruptedRunError):
        part.start()
    assert (said.read_text(), part.state()) == ("start broker\n", State.RUNNING)

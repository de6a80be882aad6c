"""A demo that is killed -9 leaves nothing behind, since its guard notices."""

from __future__ import annotations

import subprocess
import sys

import psutil

from tidegate.plugin.local.guard import Guard, survivors

SLEEP = [sys.executable, "-c", "import sys; sys.stdin.read()"]


def test_who_is_still_announced() -> None:
    assert survivors(["+ 12\n", "+ 13\n", "- 12\n", "nonsense\n", "+ x\n"]) == {13}


def test_what_was_not_forgotten_is_killed_when_the_pipe_ends() -> None:
    guard = Guard()
    with (
        subprocess.Popen(SLEEP, stdin=subprocess.PIPE, preexec_fn=guard.announce) as announced,  # noqa: PLW1509
        subprocess.Popen(SLEEP, stdin=subprocess.PIPE, preexec_fn=guard.announce) as forgotten,  # noqa: PLW1509
    ):
        guard.forget(forgotten.pid)
        guard.close()
        assert announced.wait(60) == -9
        assert forgotten.poll() is None
        forgotten.kill()


def test_the_owner_of_the_guard_is_killed() -> None:
    script = (
        "import subprocess, sys\n"
        "from tidegate.plugin.local.guard import Guard\n"
        "guard = Guard()\n"
        "sleep = [sys.executable, '-c', 'import time; time.sleep(600)']\n"
        "child = subprocess.Popen(sleep, preexec_fn=guard.announce)\n"
        "print(child.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        child = psutil.Process(int(owner.stdout.readline()))
        owner.kill()
        owner.wait(60)
    # The orphan is reaped by whoever adopted it: gone, or dead and not yet reaped.
    _, alive = psutil.wait_procs([child], timeout=60)
    assert not [one for one in alive if one.status() != psutil.STATUS_ZOMBIE]


def test_the_owner_is_killed_before_it_knows_its_child() -> None:
    script = (
        "import os, subprocess, sys\n"
        "from tidegate.plugin.local.guard import Guard\n"
        "guard = Guard()\n"
        "def begin():\n"
        "    print(os.getpid(), flush=True)\n"
        "    os.kill(os.getppid(), 9)\n"
        "    guard.announce()\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], preexec_fn=begin)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        child = psutil.Process(int(owner.stdout.readline()))
        assert owner.wait(60) == -9
        _, alive = psutil.wait_procs([child], timeout=60)
        assert not [one for one in alive if one.status() != psutil.STATUS_ZOMBIE]


def test_a_process_starts_without_its_guard() -> None:
    guard = Guard()
    guard._process.kill()
    guard._process.wait()
    done = subprocess.run([sys.executable, "-c", "print(1)"], preexec_fn=guard.announce, check=True)
    guard.close()
    assert done.returncode == 0

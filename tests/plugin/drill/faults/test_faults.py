"""A fault that was not done fails, whichever drill it is of: on a stand to which nothing can be done."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.untouched_stand import Untouched, scene_of
from tidegate.plugin.drill.catalogue import DRILLS
from tidegate.plugin.drill.fault import Fault, FaultError

FAULTS = [
    pytest.param(fault, id=f"{drill.name}-{number}")
    for drill in DRILLS
    for number, fault in enumerate(drill.faults)
]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_was_not_done_fails(tmp_path: Path, fault: Fault) -> None:
    (tmp_path / "000001.log").touch()
    with pytest.raises(FaultError):
        fault.do(scene_of(Untouched(tmp_path), tmp_path))

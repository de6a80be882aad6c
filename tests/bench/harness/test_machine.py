"""The machine, in a result."""

from __future__ import annotations

import pytest

from bench.harness.machine import cpu_model, has_avx512, machine

OF_TWO = """processor\t: 0
model name\t: A Processor 9000
flags\t\t: fpu sse2 {flag}
bugs\t\t: spectre_v1

processor\t: 1
model name\t: A Processor 9000
flags\t\t: fpu sse2 {flag}
"""
OF_ARM = "processor\t: 0\nFeatures\t: fp asimd sve\n"


@pytest.mark.parametrize(
    ("cpuinfo", "model", "avx512"),
    [
        (OF_TWO.format(flag="avx512f avx512_bf16"), "A Processor 9000", True),
        (OF_TWO.format(flag="avx2"), "A Processor 9000", False),
        (OF_TWO.format(flag="avx512fp16"), "A Processor 9000", False),
        (OF_ARM, None, False),
        ("", None, None),
    ],
    ids=["with it", "without", "another flag", "of ARM", "not told"],
)
def test_the_processor_is_read_from_what_linux_says(
    cpuinfo: str, model: str | None, avx512: bool | None
) -> None:
    assert (cpu_model(cpuinfo), has_avx512(cpuinfo)) == (model, avx512)


def test_this_machine_says_whether_it_has_avx_512() -> None:
    assert machine().avx512 is not None

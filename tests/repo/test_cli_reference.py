"""The reference of the command line is what the command line says."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.cli.services import KINDS
from outrider.setting import settings_of

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages, written on a narrow terminal by somebody who has variables set."""
    folder = tmp_path_factory.mktemp("reference")
    script = ROOT / "scripts" / "generate_cli_reference.py"
    unlike = {"COLUMNS": "40", "OUTRIDER_VERIFY_KV_TOKENS": "4096", "OUTRIDER_CONFIG": "no/file"}
    subprocess.run(
        [sys.executable, str(script), str(folder)],
        check=True,
        env={**os.environ, **unlike, "PYTHONPATH": str(ROOT)},
    )
    return folder


@pytest.mark.parametrize("page", ["cli.md", "settings.md"])
def test_the_committed_reference_is_what_the_command_line_generates(
    generated: Path, page: str
) -> None:
    new, committed = ((folder / page).read_text("utf-8") for folder in (generated, REFERENCE))
    assert new == committed, "run `python scripts/generate_cli_reference.py` and commit"


def test_every_setting_is_in_both_pages(generated: Path) -> None:
    settings = (generated / "settings.md").read_text("utf-8")
    flags = (generated / "cli.md").read_text("utf-8")
    for kind in KINDS.values():
        for setting in settings_of(kind).values():
            assert f"`{setting.variable}`" in settings
            assert setting.flag in flags

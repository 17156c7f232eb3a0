"""Where tests find the repository and the files that results are compared with."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
GOLDEN_FILES: Final = ROOT / "tests" / "support" / "golden"

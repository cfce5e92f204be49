"""Examples of answers, for the OpenAPI document: what a server answers about the first conversation of the demo.

`make docs` records them, and a test compares.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

EXAMPLES: Mapping[str, Any] = json.loads(Path(__file__).with_name("examples.json").read_bytes())
"""An example of each type, by its name."""

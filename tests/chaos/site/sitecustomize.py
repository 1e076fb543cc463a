"""Wrong clocks: Python imports this at its start where PYTHONPATH names this folder.

`CHAOS_CLOCK` names a file. If it exists when a process starts, it holds by how many seconds the process's clock is wrong.
Only Python's clock is: that of the driver's processes and the workers' tasks, which decide on time-outs and retention.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

_file = Path(os.environ.get("CHAOS_CLOCK", ""))
if _file.is_file():
    _seconds = float(_file.read_text())
    _time, _time_ns = time.time, time.time_ns
    time.time = lambda: _time() + _seconds
    time.time_ns = lambda: _time_ns() + int(_seconds * 1e9)

# As in tests/spark/site: workers would compile PySpark from its zip anew.
sys.path[:] = [path for path in sys.path if not path.endswith("/pyspark.zip")]

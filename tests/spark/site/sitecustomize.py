"""Python reads this when it starts, as it is on the PYTHONPATH of the tests in Spark.

Spark's workers have PySpark in zips and Spark's jar on their path. Each of them would compile PySpark anew, for a second,
and list these files several times, for half of one. They find the same in the environment. The daemons from which they are
forked import what each worker needs of others, such as pyarrow, once.
"""

import sys
from contextlib import suppress
from importlib import import_module

sys.path[:] = [path for path in sys.path if not path.endswith((".zip", ".jar"))]
for path in [path for path in sys.path_importer_cache if path.endswith((".zip", ".jar"))]:
    del sys.path_importer_cache[path]

if "pyspark.daemon" in sys.orig_argv:
    for module in ("pandas", "pyarrow.compute", sys.orig_argv[-1]):
        with suppress(ImportError):  # the worker itself says what it lacks
            import_module(module)

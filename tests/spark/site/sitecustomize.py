"""Python reads this when it starts, as it is on the PYTHONPATH of the tests in Spark.

Spark's workers take PySpark from a zip, without compiled files: each of them would compile it anew, for a second. They find
the same in the environment.
"""

import sys

sys.path[:] = [path for path in sys.path if not path.endswith("/pyspark.zip")]

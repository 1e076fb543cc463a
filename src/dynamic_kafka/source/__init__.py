"""How streams are read: from the metadata's snapshot to Arrow batches.

A record's way, by file names: `enumerator` asks `cluster` (watermarks) and the metadata watcher, `reconcile` turns what
they say into positions, `admission` decides how far this batch reads, `offsets` writes both down, `planning` packs the
ranges into tasks, and `reader` reads them on the executors. `reconcile`, `admission`, `offsets` and `planning` are pure.
"""

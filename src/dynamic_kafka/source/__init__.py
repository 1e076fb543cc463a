"""The source: from metadata snapshots to Arrow batches. `spark` calls it, for all APIs.

On the driver, `enumerator` answers Spark's calls: `view` collects the state of the metadata service (`metadata.watcher`) and
of each cluster (`monitor`), `reconcile` turns it into positions, `admission` limits the batch, `offsets` is the document
that holds both, and `planning` packs the ranges into tasks. On the executors, `reader` reads a task's ranges into `rows`.
`reconcile`, `admission`, `offsets` and `planning` are pure: they do no I/O.
"""

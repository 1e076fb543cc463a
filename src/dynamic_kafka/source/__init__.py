"""The source: from metadata snapshots to Arrow batches. `spark` calls it, for all APIs.

`settings` and `configure` are its options. The rest is in four rooms: `document` (the state between two batches and its
text), `rules` (pure: state in, state out), `driver`, and `executor`. A room imports itself and what stands before it in
this list; `driver` and `executor` do not import each other.

On the driver, `enumerator` answers Spark's calls: `view` collects the state of the metadata service (`metadata.watcher`) and
of each cluster (`monitor`), `reconcile` turns it into positions, `admission` limits the batch, `offsets` is the document
that holds both, and `planning` packs the ranges into tasks. On the executors, `reader` reads a task's ranges into `rows`.
"""

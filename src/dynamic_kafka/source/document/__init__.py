"""The state of a source between two batches, and its text, which Spark logs in the checkpoint.

`document` is the state, `offsets` its text, and `checkpoint` the files of Spark that hold such texts.
"""

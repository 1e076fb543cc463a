"""The command line `dynamic-kafka`: a module or a package for each command, and `main`, which lists them.

Called by `python -m dynamic_kafka` and by the installed script.
"""

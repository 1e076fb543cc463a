"""The command line, `dynamic-kafka`: a module for each command, and `main`, which lists them."""

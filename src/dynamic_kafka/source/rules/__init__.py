"""The rules of a source: state in, state out. All modules here are pure; `tests/unit/test_architecture.py` checks it."""

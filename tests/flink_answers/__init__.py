"""Answers of Flink itself, to compare with."""

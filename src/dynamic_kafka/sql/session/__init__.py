"""The parts of SQL that belong to one Spark session: settings, checkpoints, temporary views, and running queries."""

"""The harness: the only place that knows files, data sets, the command line and reports."""

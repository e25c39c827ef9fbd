"""What a log means: states, the fold of records, the derived row, the plan and the report.

Pure: no clock, no I/O, nothing awaited. The live path, recovery, readers and `verify` all use it, so they cannot
disagree.
"""

"""Pure values: ids, effect classes, records, answers and reports. No I/O, no clock."""

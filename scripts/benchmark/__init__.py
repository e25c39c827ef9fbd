"""What the engine costs, in ratios: to a synced write of the same file system, to a bare call, and to its peers."""

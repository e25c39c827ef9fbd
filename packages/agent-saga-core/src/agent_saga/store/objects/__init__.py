"""A log in any object store that can read, list and compare-and-set; the contract is docs/object-stores.md."""

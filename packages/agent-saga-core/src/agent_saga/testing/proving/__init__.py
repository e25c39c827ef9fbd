"""How `prove_rollback` works: what it breaks (`faults`), how it watches (`watch`), what it says (`judge`, `proof`)."""

"""pytest plugins that put an adapter into a framework's own tests; see scripts/upstream."""

"""One module per benchmark section; each has `run(plan) -> Section`."""

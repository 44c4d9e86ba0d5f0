"""What the benchmark programs share: building rankers, clocks, memory, the machine's peak, counted work, pages."""
